"""The few standard headers that NVRTC lacks and kernels include for their types and limits."""

from __future__ import annotations

_INTEGERS = """\
#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807LL
#define UINT32_MAX 4294967295U
#define UINT64_MAX 18446744073709551615ULL
"""
_LIMITS = """\
#pragma once
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295U
#define LLONG_MAX 9223372036854775807LL
"""
_FLOATS = """\
#pragma once
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define DBL_EPSILON 2.2204460492503131e-16
"""
_MATH = """\
#pragma once
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
"""
_SIZES = "#pragma once\ntypedef decltype(sizeof(0)) size_t;\ntypedef long ptrdiff_t;\n"
_BUILT_IN = "#pragma once\n"
STANDARD_HEADERS = {
    "cstdint": _INTEGERS, "stdint.h": _INTEGERS, "climits": _LIMITS, "limits.h": _LIMITS,
    "cfloat": _FLOATS, "float.h": _FLOATS, "cmath": _MATH, "math.h": _MATH, "cstddef": _SIZES,
    "stddef.h": _SIZES, "cuda_runtime.h": _BUILT_IN,
}  # fmt: skip
"""Contents by name; what CUDA declares by itself under NVRTC has nothing in it."""
