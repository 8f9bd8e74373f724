"""Binaries that are the same but for what debuggers read, and launches that differ."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kopt.runs.binaries import binary_id, launch_id

SOURCE = (
    'extern "C" void twice(float* x, long n) {\n    for (long i = 0; i < n; ++i) x[i] *= 2;\n}\n'
)


@pytest.fixture
def library(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")

    def build(source, folder, *flags):
        place = tmp_path / folder
        place.mkdir()
        (place / "kernel.cpp").write_text(source)
        command = ["g++", "-O2", "-shared", "-fPIC", *flags, "-o", "kernel.so", "kernel.cpp"]
        subprocess.run(command, cwd=place, check=True)
        return (place / "kernel.so").read_bytes()

    return build


def test_a_comment_another_folder_and_debug_information_change_nothing(library):
    plain, noted = library(SOURCE, "a"), library(f"// why\n\n{SOURCE}", "b", "-g")
    assert plain != noted
    assert binary_id(plain) == binary_id(noted)
    assert len(binary_id(plain)) == 16


def test_other_code_and_other_data_are_another_binary(library):
    plain = library(SOURCE, "a")
    assert binary_id(library(SOURCE.replace("*= 2", "*= 3"), "b")) != binary_id(plain)
    table = 'extern "C" const float table[] = {1, 2, 3};\n' + SOURCE
    first, second = library(table, "c"), library(table.replace("3}", "4}"), "d")
    assert len({binary_id(plain), binary_id(first), binary_id(second)}) == 3


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(58), b"code"]
)
def test_what_is_no_elf_file_counts_as_it_is(content):
    assert binary_id(content) == binary_id(bytes(content))
    assert binary_id(content) != binary_id(content + b"1")


def test_only_knobs_that_a_plan_names_are_part_of_how_it_is_launched():
    plan = {"grid": ["cdiv(n, BLOCK)"], "arguments": ["x", "BLOCKS"]}
    base = launch_id(plan, {"BLOCK": 128, "UNROLL": 4})
    assert launch_id(plan, {"BLOCK": 128, "UNROLL": 8}) == base
    assert launch_id(plan, {"BLOCK": 256, "UNROLL": 4}) != base
    assert launch_id({**plan, "grid": ["n"]}, {"BLOCK": 128, "UNROLL": 4}) != base
