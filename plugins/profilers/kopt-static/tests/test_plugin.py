"""The plugin by its name, its check, and candidates of which little is known."""

from __future__ import annotations

from kopt.model.evaluation import Build
from kopt.model.verification import Status
from kopt.plugins.catalog import installed
from kopt.testing import records
from kopt.testing.diagnosing import NoTool
from kopt.testing.strategy import a_parent
from kopt_static import Static, profiler
from kopt_static.kernels import profile_of

KERNEL = {
    "name": "k", "architecture": "sm_90", "registers": 64, "spill_bytes": 0, "shared_bytes": 0,
    "threads": 256, "grid": [132], "cluster": None, "limits_exceeded": [],
}  # fmt: skip


def test_it_is_found_by_its_name():
    (found,) = [each for each in installed("profiler") if each.name == "static"]
    assert found.distribution == "kopt-static"


def test_the_check_names_a_tool_or_the_way_to_one(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvdisasm"
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    (row,) = Static().kopt_check()
    assert (row.state, row.detail) == ("ok", str(tool))
    monkeypatch.setattr(profiler, "_disassemblers", lambda: iter(()))
    (row,) = Static().kopt_check()
    assert row.state == "warn" and "pip install triton" in row.fix


def test_what_was_not_built_has_no_profile():
    failed = records.failed(a_parent().candidate, Status.COMPILE_ERROR)
    assert Static().kopt_profile(failed, records.cpu(), NoTool()) is None


def test_a_language_without_listings_has_notes():
    parent = a_parent()
    candidate = parent.candidate.model_copy(update={"language": "torch"})
    other = parent.model_copy(update={"candidate": candidate})
    found = Static().kopt_profile(other, records.gpu(), NoTool())
    assert found is not None and found.kernels == ()
    assert found.notes == (
        "no sass listing: there is no sass here", "no ptx listing: there is no ptx here",
    )  # fmt: skip


def of(**changes):
    profile, notes = profile_of(KERNEL | changes, None, records.gpu())
    return {metric.name: metric.value for metric in profile.metrics}, notes


def test_a_kernel_of_a_known_architecture():
    found, notes = of()
    assert found["blocks_limit_registers"] == 4
    assert found["theoretical_occupancy_percent"] == 50
    assert found["waves"] == 0.25
    assert notes == ()


def test_an_unknown_architecture_has_no_occupancy_and_a_note():
    found, notes = of(architecture="sm_777")
    assert not {"theoretical_occupancy_percent", "waves", "blocks_limit_blocks"} & found.keys()
    assert found["registers_per_thread"] == 64
    assert any("sm_777" in note and "sm_90" in note for note in notes)


def test_unknown_registers_leave_the_other_limits():
    found, notes = of(registers=None)
    assert found["blocks_limit_warps"] == 8
    assert not {"theoretical_occupancy_percent", "waves", "blocks_limit_registers"} & found.keys()
    assert notes == ("k: no occupancy: its registers or its shared memory are not known",)


def test_a_block_that_cannot_start_says_why():
    found, notes = of(shared_bytes=400_000, limits_exceeded=["shared memory: 400000 of 232448"])
    assert found["blocks_limit_shared"] == found["theoretical_occupancy_percent"] == 0
    assert "waves" not in found
    assert notes == ("k: a block cannot start: shared memory: 400000 of 232448",)


def test_a_build_of_a_gpu_without_any_listing():
    parent = a_parent()
    candidate = parent.candidate.model_copy(update={"language": "cuda"})
    build = Build(backend="cuda", seconds=0.1, resources={"kernels": [KERNEL, KERNEL]})
    other = parent.model_copy(update={"candidate": candidate, "build": build})
    found = Static().kopt_profile(other, records.gpu(), NoTool())
    assert found is not None
    assert [kernel.name for kernel in found.kernels] == ["k", "k"]
    assert len(found.notes) == len(set(found.notes)) == 2
