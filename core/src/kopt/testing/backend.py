"""What a backend that builds kernels has to do (needs pytest, and the plugin installed)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from kopt.errors import CandidateError
from kopt.model.candidate import Candidate
from kopt.model.device import Device, DeviceKind
from kopt.model.executable import Executable
from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec, Problem
from kopt.model.verification import Status
from kopt.runs.builds import BuildCache
from kopt.testing import problems, records
from kopt.testing.arrays import Array, differs
from kopt.testing.bench import CandidateBench
from kopt.testing.plugin import PluginContract
from kopt.worker.candidate import WorkerContext
from kopt.worker.settings import PluginRef

_LENGTH = 77
"""Odd and no multiple of a vector's or a block's length."""
_X = Array(tuple(float(i) - 20.5 for i in range(_LENGTH)))
_Y = Array(tuple(3.0 - 0.25 * i for i in range(_LENGTH)))
_INTEGERS = Array(tuple(range(-30, _LENGTH - 30)), "int32")


def _vectors(*names: str, mutates: tuple[str, ...] = ()) -> Problem:
    """The problem of which a backend is told: names and shapes, no source."""
    inputs = tuple(InputSpec(name=name, shape=(_LENGTH,)) for name in names)
    return problems.function_problem("", "kernel", inputs, mutates=mutates)


_WARMED = """
import json, sys

from kopt.worker import candidate, forkserver

candidate.load_plugins(*json.loads(sys.argv[1]))
print("obstacle:", forkserver.obstacle() or "none")
"""


class BackendContract(PluginContract):
    """A backend builds its language, says why where it cannot, and runs on the judge's memory.

    The sources are kernel files. ``x`` and ``y`` are float32 vectors of any length, results come
    in the form in which the language returns them.

    :cvar add: ``x + y``, with at least one knob of two or more choices in its header.
    :cvar two_outputs: ``(x + y, x - y)``.
    :cvar integers: ``2 * n + 1`` for an int32 vector ``n``.
    :cvar in_place: adds ``y`` to ``x`` and returns nothing.
    :cvar scaled: ``x * factor``, where ``factor`` is a float that is passed by keyword.
    :cvar constant: ``x * 2.5``, where 2.5 is a constant of the file that the kernel uses.
    :cvar endless: a kernel that never ends.
    :cvar comment: what begins a comment.
    :cvar broken: a source that cannot be built.
    :cvar complaint: a regular expression for words of the compiler's about it.
    :cvar caches: whether a second build of the same comes from the build cache.
    :cvar tolerance: of the results, relative.
    """

    role: ClassVar[str] = "backend"
    language: ClassVar[str]
    device: ClassVar[DeviceKind] = "cpu"
    add: ClassVar[str]
    two_outputs: ClassVar[str]
    integers: ClassVar[str]
    in_place: ClassVar[str]
    scaled: ClassVar[str]
    constant: ClassVar[str]
    endless: ClassVar[str]
    comment: ClassVar[str] = "//"
    broken: ClassVar[str]
    complaint: ClassVar[str]
    caches: ClassVar[bool] = False
    tolerance: ClassVar[float] = 1e-6

    def kernel(self, source: str) -> Candidate:
        """Return the candidate of a source."""
        return parse_kernel(source, self.language)

    def context(self, folder: Path) -> WorkerContext:
        """Return a build context with the build cache in ``folder``."""
        return WorkerContext(self.on(), "native", ("x", "y"), BuildCache(folder))

    def on(self) -> Device:
        """Return the device of the builds and calls."""
        return records.cpu() if self.device == "cpu" else records.gpu()

    def build(self, candidate: Candidate, folder: Path) -> Executable | None:
        """Build in this process, with a new instance."""
        return self.hooks().kopt_build(_vectors("x", "y"), candidate, self.context(folder))

    _bench: ClassVar[CandidateBench | None] = None

    @pytest.fixture
    def bench(self, tmp_path_factory: pytest.TempPathFactory) -> CandidateBench:
        """A candidate process with the plugin in it, the same for all tests of the class."""
        cls = type(self)
        if cls._bench is None:
            plugins: list[PluginRef] = [
                (role, name, dict(options))
                for role, name, options in self.hooks().references("backend")
            ]
            cache = tmp_path_factory.mktemp("builds")
            purpose = self.language if self.device == "cpu" else ""
            cls._bench = CandidateBench(
                plugins, _vectors("x", "y"), self.on(), cache, purpose=purpose
            )
        return cls._bench

    @classmethod
    def teardown_class(cls) -> None:
        """Kill the process."""
        if cls._bench is not None:
            cls._bench.close()
            cls._bench = None

    # --- building ---

    @pytest.mark.filterwarnings("default")  # those of the libraries are not the plugin's
    def test_it_warms_up_for_whatever_is_asked(self) -> None:
        """Its own language, baselines and what it does not know: none of them is a failure."""
        hooks = self.hooks()
        for purpose in (self.language, "baselines", "reference", "nobodys-language"):
            hooks.kopt_warm_up(purpose)
        assert not hooks.failures

    @pytest.mark.skipif(sys.platform != "linux", reason="candidate processes are forked on Linux")
    def test_processes_can_be_forked_once_it_is_warm(self) -> None:
        """Neither a thread nor an open device is left by what is imported for its language."""
        plugins = [[role, name, {}] for role, name, _ in self.hooks().references("backend")]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _WARMED, json.dumps([plugins, self.language])],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.strip().splitlines()[-1] == "obstacle: none"

    def test_it_builds_its_language(self, tmp_path: Path) -> None:
        """The executable says who built it and how long that took."""
        executable = self.build(self.kernel(self.add), tmp_path)
        assert isinstance(executable, Executable)
        assert executable.build.backend
        assert executable.build.cached is False

    def test_it_leaves_other_languages_to_others(self, tmp_path: Path) -> None:
        """None, so that the next backend is asked."""
        other = Candidate(language="a language of the future", source=self.add, entry="add")
        assert self.build(other, tmp_path) is None

    def test_a_broken_source_is_the_candidates_fault(self, tmp_path: Path) -> None:
        """COMPILE_ERROR or PARSE_ERROR, in the compiler's words, without this machine's folders."""
        with pytest.raises(CandidateError, match=self.complaint) as caught:
            self.build(self.kernel(self.broken), tmp_path)
        assert caught.value.status in {Status.COMPILE_ERROR, Status.PARSE_ERROR}
        assert str(tmp_path) not in caught.value.detail

    def test_a_missing_entry_is_the_candidates_fault(self, tmp_path: Path) -> None:
        """The message names the entry."""
        candidate = self.kernel(self.add).model_copy(update={"entry": "no_such_entry"})
        with pytest.raises(CandidateError, match="no_such_entry") as caught:
            self.build(candidate, tmp_path)
        assert caught.value.status in {Status.COMPILE_ERROR, Status.PARSE_ERROR}

    def test_what_runs_keeps_its_identity(self, tmp_path: Path) -> None:
        """The same candidate gives the same binary, in another folder too; another knob another."""
        candidate = self.kernel(self.add)
        name, knob = next(iter(candidate.knobs.items()))
        values = {name: next(choice for choice in knob.choices if choice != knob.default)}
        changed = candidate.model_copy(update={"values": values})
        first, again, other = (
            self.build(which, tmp_path / folder)
            for which, folder in ((candidate, "a"), (candidate, "b"), (changed, "a"))
        )
        assert first is not None
        assert again is not None
        assert other is not None
        if not first.build.binary_id:
            pytest.skip("it has no binary before it is launched")
        assert again.build.binary_id == first.build.binary_id
        assert other.build.binary_id != first.build.binary_id

    def test_a_second_build_is_reused(self, tmp_path: Path) -> None:
        """A build that is in the cache costs next to nothing."""
        if not self.caches:
            pytest.skip("it does not use the build cache")
        first, again = (self.build(self.kernel(self.add), tmp_path) for _ in range(2))
        assert first is not None
        assert again is not None
        assert (first.build.cached, again.build.cached) == (False, True)
        assert again.build.binary_id == first.build.binary_id

    def test_a_damaged_build_is_made_again(self, tmp_path: Path) -> None:
        """Every file of the cache is cut in half: that costs a build, and no wrong kernel runs."""
        if not self.caches:
            pytest.skip("it does not use the build cache")
        first = self.build(self.kernel(self.add), tmp_path)
        for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
            content = path.read_bytes()
            path.unlink()  # what is mapped already stays whole
            path.write_bytes(content[: len(content) // 2])
        again = self.build(self.kernel(self.add), tmp_path)
        assert first is not None
        assert again is not None
        assert again.build.cached is False
        assert again.build.binary_id == first.build.binary_id

    # --- running, in a process of its own ---

    def expect(
        self,
        bench: CandidateBench,
        source: str,
        arguments: Mapping[str, Array | float],
        wanted: Sequence[Array],
        *,
        structure: str = "tensor",
        keywords: Sequence[str] = (),
    ) -> None:
        """Run a kernel twice on outputs full of garbage and compare what it left there."""
        garbage = [Array.full(array, 77) for array in wanted]
        for launches in (1, 2):
            outcome = bench.run(
                self.kernel(source), arguments, garbage, keywords=keywords, structure=structure,
                launches=launches,
            )  # fmt: skip
            assert outcome.claim.structure == structure
            shapes = [(claim.shape, claim.dtype) for claim in outcome.claim.outputs]
            assert shapes == [(array.extents, array.dtype) for array in wanted]
            for found, array in zip(outcome.outputs, wanted, strict=True):
                assert differs(found, array.values, self.tolerance) == ""
            for name, value in arguments.items():
                if isinstance(value, Array):
                    assert outcome.inputs[name] == value.values
            assert outcome.canaries_hurt == ()

    def test_it_runs_on_shared_memory(self, bench: CandidateBench) -> None:
        """Results lie in the judge's output, and nothing else was touched."""
        total = Array(tuple(x + y for x, y in zip(_X.values, _Y.values, strict=True)))
        self.expect(bench, self.add, {"x": _X, "y": _Y}, [total])

    def test_it_returns_several_outputs(self, bench: CandidateBench) -> None:
        """Each in its own buffer, in order."""
        pairs = list(zip(_X.values, _Y.values, strict=True))
        wanted = [Array(tuple(x + y for x, y in pairs)), Array(tuple(x - y for x, y in pairs))]
        self.expect(bench, self.two_outputs, {"x": _X, "y": _Y}, wanted, structure="tuple:2")

    def test_it_keeps_integers(self, bench: CandidateBench) -> None:
        """An int32 vector stays one."""
        wanted = Array(tuple(2 * n + 1 for n in _INTEGERS.values), "int32")
        self.expect(bench, self.integers, {"n": _INTEGERS}, [wanted])

    def test_it_passes_scalars_by_keyword(self, bench: CandidateBench) -> None:
        """As the reference takes it."""
        wanted = Array(tuple(x * 2.5 for x in _X.values))
        self.expect(
            bench, self.scaled, {"x": _X, "factor": 2.5}, [wanted], keywords=["factor"]
        )  # fmt: skip

    def test_it_changes_an_argument_in_place(self, bench: CandidateBench) -> None:
        """The judge's own memory is what changes; there is no output."""
        outcome = bench.run(
            self.kernel(self.in_place), {"x": _X, "y": _Y}, [], structure="none"
        )  # fmt: skip
        total = tuple(x + y for x, y in zip(_X.values, _Y.values, strict=True))
        assert differs(outcome.inputs["x"], total, self.tolerance) == ""
        assert outcome.inputs["y"] == _Y.values
        assert outcome.claim.structure == "none"
        assert outcome.canaries_hurt == ()

    def test_an_edit_that_changes_nothing_is_the_same_binary(self, bench: CandidateBench) -> None:
        """Binary and launches keep their ids where only a comment changed."""
        sources = (self.add, f"{self.add}\n{self.comment} in more words\n")
        outputs = [Array.full(_X, 77)]
        first, again = (
            bench.run(self.kernel(source), {"x": _X, "y": _Y}, outputs).build for source in sources
        )
        if not first.launch_id:
            pytest.skip("it does not tell how its binaries are launched")
        assert first.binary_id
        assert (again.binary_id, again.launch_id) == (first.binary_id, first.launch_id)

    def test_a_changed_constant_meets_no_old_binary(self, bench: CandidateBench) -> None:
        """What a kernel takes from its file is part of what it is."""
        for factor in ("2.5", "1.5"):
            source = self.constant.replace("2.5", factor)
            assert factor in source
            wanted = Array(tuple(x * float(factor) for x in _X.values))
            self.expect(bench, source, {"x": _X}, [wanted])

    def test_an_endless_kernel_costs_itself_alone(self, bench: CandidateBench) -> None:
        """It is killed at its deadline, as HANG; the next one runs in a new process."""
        with pytest.raises(CandidateError) as caught:
            bench.run(self.kernel(self.endless), {"x": _X}, [Array.full(_X, 77)], seconds=4.0)
        assert caught.value.status is Status.HANG
        self.test_it_runs_on_shared_memory(bench)

    def test_another_language_is_unsupported_in_a_run(self, bench: CandidateBench) -> None:
        """A candidate that nobody builds ends with its own status."""
        other = Candidate(language="a language of the future", source="", entry="add")
        with pytest.raises(CandidateError) as caught:
            bench.build(other)
        assert caught.value.status is Status.UNSUPPORTED
