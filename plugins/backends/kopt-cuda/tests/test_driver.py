"""What the driver is told, with a library in its place that writes it down; a GPU is not needed."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess

import pytest

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_cuda import driver
from kopt_cuda.binding import ResolvedLaunch

# The structures are spelt out as in cuda.h, so that ours are compared with a compiler's layout.
STAND_IN = r"""
#include <stddef.h>
#include <string.h>
typedef struct { int id; char pad[8 - sizeof(int)]; union { char pad[64]; struct { unsigned x, y, z; } cluster; } value; } Attribute;
typedef struct {
    unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, shared; void *stream; Attribute *attrs;
    unsigned count;
} Config;
long long seen[32];
int answer = 0;
int cuLaunchKernelEx(const Config *c, void *function, void **arguments, void **extra) {
    long long all[] = {c->gridX, c->gridY, c->gridZ, c->blockX, c->blockY, c->blockZ, c->shared,
        (long long)c->stream, c->count, c->count ? c->attrs->id : 0,
        c->count ? c->attrs->value.cluster.x : 0, c->count ? c->attrs->value.cluster.y : 0,
        (long long)function, *(long long *)arguments[0], *(int *)arguments[1], extra == NULL};
    memcpy(seen, all, sizeof all);
    return answer;
}
int cuMemsetD8Async(unsigned long long at, unsigned char value, size_t n, void *stream) {
    long long all[] = {at, value, n, (long long)stream};
    memcpy(seen, all, sizeof all);
    return answer;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    long long all[] = {(long long)function, attribute, value};
    memcpy(seen + 20, all, sizeof all);
    return 0;
}
int cuGetErrorName(int code, const char **text) { *text = "CUDA_ERROR_OF_TEST"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "as told"; return 0; }
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    (tmp_path / "driver.c").write_text(STAND_IN)
    made = tmp_path / "driver.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(made), str(tmp_path / "driver.c")]
    subprocess.run(command, check=True, capture_output=True)
    found = driver.declared(ctypes.CDLL(str(made)))
    monkeypatch.setattr(driver, "_library", lambda: found)
    return found


def seen(library):
    return list((ctypes.c_longlong * 32).in_dll(library, "seen"))


def launch(**changes):
    given = {
        "kernel": "f", "grid": (3, 4, 5), "block": (64, 2, 1), "shared": 4096,
        "arguments": (struct.pack("P", 1 << 40), struct.pack("i", -7)),
    }  # fmt: skip
    return ResolvedLaunch(**given | changes)


def test_a_launch_arrives_whole(library):
    driver.PreparedLaunch(0x7000_0000_1234, launch())(0x5555_0000_4321)
    assert seen(library)[:16] == [
        3, 4, 5, 64, 2, 1, 4096, 0x5555_0000_4321, 0, 0, 0, 0, 0x7000_0000_1234, 1 << 40, -7, 1,
    ]  # fmt: skip


def test_a_cluster_is_an_attribute(library):
    driver.PreparedLaunch(1, launch(cluster=(3, 2, 1)))(0)
    assert seen(library)[7:12] == [0, 1, 4, 3, 2]
    assert seen(library)[20:23] == [0, 0, 0]


def test_a_large_cluster_is_opted_in_to(library):
    driver.PreparedLaunch(9, launch(cluster=(16, 1, 1)))
    assert seen(library)[20:23] == [9, 14, 1]


def test_memory_is_zeroed_on_the_stream(library):
    driver.zero(1 << 41, 12, 77)
    assert seen(library)[:4] == [1 << 41, 0, 12, 77]


@pytest.mark.parametrize(
    ("code", "status"), [(1, Status.LAUNCH_FAILED), (2, Status.OOM), (700, Status.ILLEGAL_ACCESS)]
)
def test_an_error_code_is_the_candidates_with_its_name(library, code, status):
    ctypes.c_int.in_dll(library, "answer").value = code
    with pytest.raises(
        CandidateError, match=f"kernel f: CUDA_ERROR_OF_TEST: as told .{code}"
    ) as caught:
        driver.PreparedLaunch(1, launch())(0)
    assert caught.value.status is status
