"""CUDA C++ kernels that are compiled here: what their SASS and PTX show."""

from __future__ import annotations

import pytest

HEADER = """// /// kopt
// entry = "kernel"
// [[launch]]
// grid = ["a.numel // 1024"]
// block = [256]
// arguments = ["a", "out", "a.numel"]
// ///
"""
VECTORISED = """
extern "C" __global__ void kernel(const float4* x, float4* out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = x[at];
    out[at] = make_float4(v.x * 2, v.y * 2, v.z * 2, v.w * 2);
}
"""
BYTES = """
extern "C" __global__ void kernel(const unsigned char* x, unsigned char* out, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = x[at] + 1;
}
"""
TENSOR = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void kernel(const half* x, half* out, int n) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, half> c;
    wmma::fill_fragment(c, __float2half(0.f));
    wmma::load_matrix_sync(a, x, 16);
    wmma::load_matrix_sync(b, x + 256, 16);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(out, c, 16, wmma::mem_row_major);
}
"""
SPILLING = """
extern "C" __global__ __launch_bounds__(256, 8)
void kernel(const float* x, float* out, int n) {
    float kept[128];
    const float* from = x + threadIdx.x;
    for (int i = 0; i < 128; ++i) kept[i] = from[i * 256];
    for (int i = 0; i < 128; ++i) out[i * 256 + threadIdx.x] = kept[i] * kept[127 - i];
}
"""
KINDS = """
__device__ __noinline__ float twice(float value) { return value * 2; }
extern "C" __global__ void kernel(const double* x, double* out, int n) {
    __shared__ float tile[256];
    int at = threadIdx.x;
    tile[at] = __expf(float(x[at]));
    __syncthreads();
    __syncwarp();
    double value = x[at] * 2.0 + 1.0;
    for (int i = 0; i < n; ++i) value += twice(tile[(at + i * 7) % 256]);
    atomicAdd(reinterpret_cast<float*>(out) + n, tile[at ^ 1]);
    out[at] = value;
}
"""
GENERIC = """
extern "C" __global__ void kernel(const float* x, float* out, int n) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const float* from = n & 1 ? tile : x;
    out[threadIdx.x] = from[threadIdx.x ^ 1];
}
"""
ASYNCHRONOUS = """
extern "C" __global__ void kernel(const float4* x, float4* out, int n) {
    __shared__ alignas(128) float4 tile[256];
    __shared__ unsigned long long done;
    unsigned to = __cvta_generic_to_shared(tile), all = __cvta_generic_to_shared(&done);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], 512, [%2];" ::"r"(to), "l"(x), "r"(all) : "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;"
                 ::"l"(out), "r"(to) : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 512;"
                 ::"l"(out), "r"(to) : "memory");
}
"""
WARP_GROUP = """
extern "C" __global__ void kernel(const float* x, float* out, int n) {
    const auto* at = reinterpret_cast<const unsigned long long*>(x);
    float c[4] = {0, 0, 0, 0};
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                 "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(at[0]), "l"(at[1]));
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    out[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}
"""
BLACKWELL = """
extern "C" __global__ void kernel(const float* x, float* out, int n) {
    float v[8];
    asm volatile("ld.global.v8.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]),
                   "=f"(v[6]), "=f"(v[7]) : "l"(x + threadIdx.x * 8));
    asm volatile("{.reg .pred p; setp.ne.b32 p, %0, 0;"
                 "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %0, p;}" ::"r"(n), "l"(x));
    out[threadIdx.x] = v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7];
}
"""
TILES = """
struct alignas(64) Map { unsigned long long words[16]; };
__device__ Map map;
extern "C" __global__ void kernel(const float* x, float* out, int n) {
    __shared__ alignas(128) float tile[1024];
    __shared__ unsigned long long done;
    unsigned to = __cvta_generic_to_shared(tile), all = __cvta_generic_to_shared(&done);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %2}], [%3];" ::"r"(to), "l"(&map), "r"(n), "r"(all) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %2}], [%1];"
                 ::"l"(&map), "r"(to), "r"(n) : "memory");
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group "
                 "[%0, {%2, %2}], [%1];" ::"l"(&map), "r"(to), "r"(n) : "memory");
}
"""
BOTH = [(), ("sass",)]
"""With SASS, and without it: from PTX."""


@pytest.fixture
def cuda(build):
    """Return a function that gives the metrics of a source's only kernel."""

    def make(source, dtype="float32", **options):
        return build(HEADER + source, "cuda", (1 << 16,), dtype, **options).kernels()["kernel"]

    return make


@pytest.mark.parametrize("missing", BOTH)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_120"])
def test_widths_of_global_accesses(cuda, missing, architecture):
    wide = cuda(VECTORISED, missing=missing, architecture=architecture)
    assert wide["static_widest_global_bytes"] == wide["static_narrowest_global_bytes"] == 16
    assert (wide["static_global_loads"], wide["static_global_stores"]) == (1, 1)
    assert wide["static_fp32_instructions"] == 4
    assert wide["static_tensor_instructions"] == wide["static_branches"] == 0
    narrow = cuda(BYTES, "uint8", missing=missing, architecture=architecture)
    assert narrow["static_widest_global_bytes"] == 1


@pytest.mark.parametrize("missing", BOTH)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_tensor_core_instructions(cuda, missing, architecture):
    assert cuda(TENSOR, "float16", missing=missing, architecture=architecture)[
        "static_tensor_instructions"
    ]


@pytest.mark.parametrize("missing", BOTH)
def test_asynchronous_tensor_core_instructions(cuda, missing):
    assert cuda(WARP_GROUP, missing=missing)["static_tensor_instructions"] == 1
    found = cuda(BLACKWELL, missing=missing, architecture="sm_100")
    assert found["static_tensor_instructions"] == 1
    assert found["static_widest_global_bytes"] == 32
    assert found["static_narrowest_global_bytes"] == 4


@pytest.mark.parametrize("missing", BOTH)
def test_copies_of_tiles_have_no_width(cuda, missing):
    found = cuda(TILES, missing=missing)
    assert (found["static_global_loads"], found["static_global_stores"]) == (1, 1)
    assert found["static_atomic_instructions"] == 1
    assert found["static_shared_accesses"] >= 3
    assert "static_widest_global_bytes" not in found


def test_spills_are_local_accesses(cuda):
    found = cuda(SPILLING)
    assert found["registers_per_thread"] <= 32
    assert found["spill_bytes"] > 0 and found["stack_bytes"] > 0
    assert found["static_local_accesses"] > 10
    assert cuda(VECTORISED)["static_local_accesses"] == 0


def test_ptx_does_not_show_spills(build):
    built = build(HEADER + SPILLING, "cuda", (1 << 16,), missing=["sass"])
    found = built.kernels()["kernel"]
    assert found["spill_bytes"] > 0  # the assembler's own word
    assert "static_local_accesses" not in found
    assert any("counted in PTX" in note for note in built.profile().notes)


@pytest.mark.parametrize("missing", BOTH)
def test_kinds_of_instructions(cuda, missing):
    found = cuda(KINDS, "float64", missing=missing)
    assert found["static_barriers"] == 1
    assert found["static_atomic_instructions"] == 1
    assert found["static_special_instructions"] == 1
    assert found["static_fp64_instructions"] >= 2
    assert found["static_shared_accesses"] >= 3
    assert found["static_branches"] >= 1
    assert 0 < found["static_integer_instructions"] < found["static_instructions"]
    assert found["static_widest_global_bytes"] == 8


@pytest.mark.parametrize("missing", BOTH)
def test_asynchronous_copies_are_accesses_of_both_memories(cuda, missing):
    found = cuda(ASYNCHRONOUS, missing=missing)
    assert found["static_global_loads"] == 2
    assert found["static_global_stores"] == 1
    assert found["static_atomic_instructions"] == 1
    assert found["static_shared_accesses"] >= 4
    assert found["static_widest_global_bytes"] == found["static_narrowest_global_bytes"] == 16


@pytest.mark.parametrize("missing", BOTH)
def test_an_access_of_an_unknown_space_is_noted(build, missing):
    built = build(HEADER + GENERIC, "cuda", (1 << 16,), missing=missing)
    assert built.kernels()["kernel"]["static_global_loads"] == 1
    assert [note for note in built.profile().notes if "do not name its space" in note]


def test_what_the_launch_says(build):
    source = HEADER.replace("block = [256]", "block = [256]\n// shared = 4096\n// cluster = [2]")
    built = build(source + GENERIC, "cuda", (1 << 16,))
    found = built.kernels()["kernel"]
    assert found["grid_blocks"] == 64
    assert found["block_threads"] == 256
    assert found["cluster_blocks"] == 2
    assert found["multiprocessors"] == 132
    assert found["static_shared_bytes"] == 1024
    assert found["dynamic_shared_bytes"] == 4096
    assert found["shared_bytes"] == 5120
    assert found["theoretical_occupancy_percent"] == 100
    assert found["waves"] == pytest.approx(64 / (8 * 132))
    assert any("at least these waves" in note for note in built.profile().notes)
    assert build(source + GENERIC, "cuda", (1 << 16,)).kernels(gpu=False)["kernel"].keys() == (
        found.keys() - {"multiprocessors", "waves"}
    )


def test_every_launch_of_a_plan_is_a_kernel_of_its_own(build):
    second = """// [[launch]]
// kernel = "other"
// grid = [1]
// block = [32]
// arguments = ["a", "out", "1"]
// ///
"""
    other = VECTORISED.replace("kernel(", "other(").replace("x[at]", "x[at + 1]")
    header = HEADER.removesuffix("// ///\n") + second
    found = build(header + VECTORISED + other, "cuda", (1 << 16,)).kernels()
    assert list(found) == ["kernel", "other"]
    assert found["other"]["block_threads"] == 32
    assert all(each["static_global_loads"] == 1 for each in found.values())


def test_many_barriers_limit_the_blocks(build):
    named = GENERIC.replace("__syncthreads();", 'asm volatile("bar.sync 15, 256;" ::: "memory");')
    built = build(HEADER + named, "cuda", (1 << 16,))
    assert built.kernels()["kernel"]["theoretical_occupancy_percent"] == 50  # 64 barriers by 16
    assert "kernel: its 16 block barriers limit its occupancy" in built.profile().notes


def test_without_any_listing_there_is_what_the_build_says(build):
    built = build(HEADER + VECTORISED, "cuda", (1 << 16,), missing=["sass", "ptx"])
    found = built.kernels()["kernel"]
    assert found["registers_per_thread"] > 0 and found["blocks_limit_registers"] > 0
    assert not [name for name in found if name.startswith("static_") and "instr" in name]
    assert "no sass listing: no tool for sass" in built.profile().notes
    assert "no ptx listing: no tool for ptx" in built.profile().notes
