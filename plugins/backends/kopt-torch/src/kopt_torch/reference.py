"""A problem made runnable with PyTorch, in the judge process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import ProblemError
from kopt.model.problem import Signature
from kopt.model.reference import Alone, Answer
from kopt_torch import machine, stress, variants
from kopt_torch.describing import describe
from kopt_torch.drawing import Draw, Drawer
from kopt_torch.float64 import widened
from kopt_torch.inputs import TorchInputs
from kopt_torch.likeness import alike, content
from kopt_torch.ordered import in_order, searched
from kopt_torch.precision import apply_precision, convolves_in_tf32
from kopt_torch.preflight import check_memory, memory_needed, room_needed
from kopt_torch.slices import Terms, count_slices, find_terms, take_rows
from kopt_torch.source import ReferenceFunction
from kopt_torch.structure import flatten
from kopt_torch.tensors import all_finite
from kopt_torch.trace import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kopt.model.device import DeviceKind
    from kopt.model.problem import Problem, Workload, WorkloadSignature
    from kopt.model.reference import Change, InputSet, Room

_NOTHING: Mapping[str, Any] = {}


class TorchReference:
    """See kopt.model.reference.Reference."""

    def __init__(self, problem: Problem, kind: DeviceKind, room: Room | None = None) -> None:
        apply_precision(problem)
        self.problem = problem
        self._room: Room = Alone() if room is None else room
        self.device = machine.find_device(kind)
        self._function = ReferenceFunction(problem, kind)
        self._drawer = Drawer(problem, self._function)
        self._slices: dict[str, int] = {}
        self._terms: dict[str, Terms] = {}
        needed = {w.name: memory_needed(problem, self._function, w) for w in problem.workloads}
        for workload in problem.workloads:
            check_memory(problem, workload, self.device, needed[workload.name])
        if room is not None:
            rooms = [
                room_needed(problem, self._function, w, needed[w.name]) for w in problem.workloads
            ]
            room.reserve(max(rooms))
        workloads = {w.name: self._signature(w, needed[w.name]) for w in problem.workloads}
        self.signature = Signature(workloads=workloads)
        self._distributions = self._usable_distributions()

    @property
    def distributions(self) -> tuple[str, ...]:
        """``native``, then what the reference is finite on: ``signed``, or what comes closest."""
        return self._distributions

    @property
    def sharper(self) -> tuple[str, ...]:
        """Further distributions, for what survives the others."""
        return self._drawer.sharper()

    @property
    def input_notes(self) -> tuple[str, ...]:
        """What was inferred of inputs that nothing declares, in words."""
        return self._drawer.notes()

    def sharpen(self, names: Iterable[str]) -> None:
        """Add those of ``sharper`` on which the reference is finite to ``distributions``."""
        workload = self._smallest()
        new = [name for name in names if name not in self._distributions]
        finite = (name for name in new if self._is_finite(workload, name))
        self._distributions = (*self._distributions, *finite)

    def _draw(
        self, workload: Workload, seed: int, distribution: str, problem: Problem | None = None
    ) -> tuple[Draw, dict[str, torch.Tensor]]:
        drawn = self._drawer.draw(problem or self.problem, workload, seed, distribution)
        return drawn, self._drawer.state(seed, distribution)

    def inputs(self, workload: str, seed: int, distribution: str = "native") -> TorchInputs:
        """Draw a set of arguments in shared memory."""
        chosen = self.problem.workload(workload)
        return TorchInputs(
            lambda seed: self._draw(chosen, seed, distribution), self.signature.workloads[workload],
            workload=workload, seed=seed, distribution=distribution, init=self._function.init,
            mutates=self.problem.mutates, device=self.device.kind, fixed=self._drawer.searched,
        )  # fmt: skip

    def extents(self, workload: str) -> dict[str, int]:
        """Return the extents that ``changed_inputs`` can change, by name."""
        chosen = self.problem.workload(workload)
        drawn, _ = self._draw(chosen, 0, "native")
        return variants.extents(self.problem, chosen, drawn)

    def changed_inputs(self, workload: str, seed: int, change: Change) -> TorchInputs | None:
        """Draw arguments of other extents, layout or content; None where there are none."""
        try:
            make = self._changed(workload, change)
            drawn, state = make(seed)
            if self.device.kind == "cuda" and change.extents and variants.has_integers(drawn):
                self.try_on_cpu(drawn, state)
            described = self._probed(drawn, state, stress.usable(change.content))
        except ProblemError:  # the reference has its own idea of what goes together
            return None
        except torch.OutOfMemoryError:
            self._trim()
            return None
        if described is None:
            return None
        del drawn, state  # the set draws its own
        return TorchInputs(
            make, described, workload=f"{workload}, {change.name}", seed=seed,
            distribution=change.distribution, init=self._function.init,
            mutates=self.problem.mutates, device=self.device.kind, fixed=self._drawer.searched,
            layout=change.layout,
        )  # fmt: skip

    def _changed(
        self, workload: str, change: Change
    ) -> Callable[[int], tuple[Draw, dict[str, torch.Tensor]]]:
        """Return what draws from a seed as ``change`` says."""
        problem, chosen = variants.resized(
            self.problem, self.problem.workload(workload), change.extents
        )
        extents: dict[str, int] = {}

        def make(seed: int) -> tuple[Draw, dict[str, torch.Tensor]]:
            drawn, state = self._draw(chosen, seed, change.distribution, problem)
            if not problem.inputs:
                drawn = variants.cropped(drawn, change.extents)
            if change.extents and variants.has_integers(drawn):
                extents.update(extents or self.extents(workload))
                drawn = variants.pointing_inside(drawn, extents, change.extents)
            if change.content:
                drawn = stress.stressed(problem, drawn, change.content, seed)
            return in_order(drawn, self._drawer.searched), state

        return make

    def try_on_cpu(self, drawn: Draw, state: dict[str, torch.Tensor]) -> None:
        """Raise ProblemError for integers that point outside: a GPU would not run anything again.

        Its assertions end the judge's context. What else goes wrong says nothing of the reference:
        not everything runs on a CPU. Half types are tried as they are, and then in float32.
        """
        for wide in (False, True):
            try:
                self._on_cpu(drawn, state, wide=wide)
            except ProblemError as error:
                if _points_outside(error):
                    raise
            else:
                return

    def _on_cpu(self, drawn: Draw, state: dict[str, torch.Tensor], *, wide: bool) -> None:
        def moved(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            narrow = value.dtype in (torch.float16, torch.bfloat16)
            return value.cpu().float() if wide and narrow else value.cpu()

        self._function(
            [moved(value) for value in drawn.values],
            {name: moved(value) for name, value in drawn.keywords.items()},
            {name: moved(value) for name, value in state.items()},
        )

    def _probed(
        self, drawn: Draw, state: dict[str, torch.Tensor], of_use: Callable[[torch.Tensor], bool]
    ) -> WorkloadSignature | None:
        """Run the reference on what was drawn; None where what it gives is of no use."""
        values = dict(zip(drawn.names, drawn.values, strict=True)) | drawn.keywords
        for name in self.problem.mutates:
            values[name] = values[name].clone()
        result = self._function(
            [values[n] for n in drawn.names], {n: values[n] for n in drawn.keywords}, state
        )
        leaves, structure = flatten(result)
        written = [*leaves, *(values[name] for name in self.problem.mutates)]
        if not all(of_use(leaf) for leaf in written):
            return None
        return describe(self.problem, drawn, state, leaves, structure)

    def _signature(self, workload: Workload, needed: int) -> WorkloadSignature:
        drawn, state = self._draw(workload, 0, "native")
        operators = trace(self._function, drawn, state)
        if new := searched(operators) - self._drawer.searched:
            self._drawer.searched |= new
            drawn, state = self._draw(workload, 0, "native")
        leaves, structure = self._first_run(drawn, state)
        self._slices[workload.name] = count_slices(
            self.problem, self._function, drawn, state, leaves
        )
        terms = find_terms(self.problem, self._function, drawn, state, leaves)
        if terms is not None:
            self._terms[workload.name] = terms
        elif self._slices[workload.name] == 1:
            needed = memory_needed(self.problem, self._function, workload, whole=True)
        described = describe(self.problem, drawn, state, leaves, structure)
        tf32 = None
        if self.device.kind == "cuda" and not self.problem.mutates:
            tf32 = convolves_in_tf32(
                operators,
                leaves,
                lambda: flatten(self._function(drawn.values, drawn.keywords, state))[0],
            )
        seen = {"trace": operators, "memory_bytes": needed, "tf32": tf32}
        return described.model_copy(update=seen)

    def _first_run(self, drawn: Draw, state: dict[str, torch.Tensor]) -> tuple[list[Any], str]:
        """Run the reference; refuse names that clash and changes that are not declared."""
        name = self.problem.name
        if clash := sorted({n for n, _, _ in drawn.named()} & set(state)):
            raise ProblemError(
                f"the reference of {name!r} has an argument and a parameter or buffer of one name: "
                f"{', '.join(clash)}; rename the argument"
            )
        values = {n: v for n, v, _ in drawn.named()}
        before = {n: content(v) for n, v in {**values, **state}.items()}
        result = self._function(drawn.values, drawn.keywords, state)
        touched = sorted(n for n, v in values.items() if content(v) != before[n])
        if set(touched) - set(self.problem.mutates):
            raise ProblemError(
                f"the reference of {name!r} changes {', '.join(touched)} in place; declare it: "
                f"mutates = {sorted({*touched, *self.problem.mutates})!r}"
            )
        if updated := sorted(n for n, v in state.items() if content(v) != before[n]):
            raise ProblemError(
                f"the reference of {name!r} changes its own buffers ({', '.join(updated)}); put the "
                "module into evaluation mode: module.eval()"
            )
        return flatten(result)

    def _usable_distributions(self) -> tuple[str, ...]:
        workload = self._smallest()
        self._refuse_random(workload)
        return self._drawer.settle(lambda name: self._is_finite(workload, name))

    def _smallest(self) -> Workload:
        """The workload that takes the least to try something on."""
        return min(
            self.problem.workloads,
            key=lambda w: self.signature.workloads[w.name].compulsory_bytes,
        )

    def _refuse_random(self, workload: Workload) -> None:
        """Raise ProblemError where two runs on the same inputs differ by more than rounding."""

        def run(number: int) -> list[torch.Tensor]:
            drawn, state = self._draw(workload, 1, "native")
            # A file's own inputs are drawn from the generator that the reference may draw from too.
            torch.manual_seed(number)
            return flatten(self._function(drawn.values, drawn.keywords, state))[0]

        if not alike(run(0), run(1)):
            raise ProblemError(
                f"the reference of {self.problem.name!r} gives different results on the same inputs, "
                "so that nothing could be compared with it; if it draws random numbers, make what "
                "it draws an input"
            )

    def _is_finite(self, workload: Workload, distribution: str) -> bool:
        self._trim()
        try:
            drawn, state = self._draw(workload, 1, distribution)
            leaves, _ = flatten(self._function(drawn.values, drawn.keywords, state))
        except ProblemError:
            if distribution == "native":
                raise
            return False  # it refuses such values
        return all(all_finite(leaf) for leaf in leaves)

    def expected(self, inputs: InputSet) -> list[torch.Tensor]:
        """Run the reference as the user does, on copies of what it changes."""
        assert isinstance(inputs, TorchInputs)
        return self._results(inputs, float64=False)

    def expected_with(
        self, inputs: InputSet, arguments: Mapping[str, Any], state: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Run the reference as the user does, with other values for some arguments and state."""
        assert isinstance(inputs, TorchInputs)
        return self._results(inputs, float64=False, arguments=arguments, state=state)

    def oracle(self, inputs: InputSet) -> list[torch.Tensor]:
        """Run the reference in float64."""
        assert isinstance(inputs, TorchInputs)
        return self._results(inputs, float64=True)

    def oracle_with(
        self, inputs: InputSet, arguments: Mapping[str, Any], state: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Run the reference in float64, with other values for some arguments and state."""
        assert isinstance(inputs, TorchInputs)
        return self._results(inputs, float64=True, arguments=arguments, state=state)

    def answers(self, inputs: InputSet) -> Iterator[Answer]:
        """Yield what the results should be; large inputs in slices of the first dimension."""
        assert isinstance(inputs, TorchInputs)
        count = self._slices.get(inputs.workload, 1)
        extent = inputs.results[0][1].shape[0] if count > 1 else 0
        step = -(-extent // count)
        parts = (
            [slice(i, min(i + step, extent)) for i in range(0, extent, step)] if step else [None]
        )
        for rows in parts:
            yield self._answer(inputs, rows)  # of which nothing is kept here

    def _answer(self, inputs: TorchInputs, rows: slice | None) -> Answer:
        expected = self._results(inputs, float64=False, rows=rows)
        return Answer(rows or slice(None), expected, self._results(inputs, float64=True, rows=rows))

    def _results(
        self,
        inputs: TorchInputs,
        *,
        float64: bool,
        rows: slice | None = None,
        arguments: Mapping[str, Any] = _NOTHING,
        state: Mapping[str, Any] = _NOTHING,
    ) -> list[torch.Tensor]:
        self._make_way()
        positional, keywords = inputs.arguments
        names = [a.name for a in inputs.call.arguments if not a.keyword]
        mine = dict(zip(names, positional, strict=True)) | keywords | dict(arguments)
        for name in self.problem.mutates:
            mine[name] = mine[name].clone()
        if rows is not None:
            mine = {name: take_rows(value, rows) for name, value in mine.items()}
        run = self._function.in_float64 if float64 else self._function
        before = {name: mine[name] for name in self.problem.mutates}
        if float64:  # widen here, so that what is changed in place is ours to look at
            before = {name: widened(value) for name, value in before.items()}
            mine |= before
        used = inputs.state | dict(state)
        terms = self._terms.get(inputs.workload) if float64 and rows is None else None
        if terms is not None:
            return self._added_up(terms, [mine[n] for n in names], used)
        result = run([mine[n] for n in names], {n: mine[n] for n in keywords}, used)
        leaves, _ = flatten(result)
        self._trim()
        return [*leaves, *before.values()]

    def _added_up(
        self, terms: Terms, values: list[Any], state: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Run in float64 on one slice of rows after another, and put their scalars together."""
        rows, parts = terms.slices(values), []
        for each in rows:
            self._make_way()
            found = self._function.in_float64(terms.take(values, each), {}, dict(state))
            parts.append(flatten(found)[0])
            self._trim()
        return terms.together(parts, rows)

    @contextmanager
    def lend(self, nbytes: int) -> Iterator[bool]:
        """Reserve memory of the device for a while; what PyTorch kept of it goes back at the end."""
        with self._room.lend(nbytes) as lent:
            try:
                yield lent
            finally:
                self._trim()

    def _make_way(self) -> None:
        if self.device.kind == "cuda":
            torch.cuda.synchronize()  # what was queued must not run beside others' measurements
        self._room.make_way()

    def copy_ms(self, nbytes: int) -> float:
        """Median time of a plain copy that reads and writes ``nbytes`` in all."""
        try:
            return machine.copy_ms(nbytes, self.device)
        finally:
            self._trim()

    def _trim(self) -> None:
        if self.device.kind == "cuda":
            torch.cuda.ipc_collect()  # memory that other processes have let go of
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Give cached memory back."""
        self._trim()


def _points_outside(error: ProblemError) -> bool:
    """Whether a reference raised what PyTorch raises on a CPU for a wrong position or label."""
    words = ("out of bounds", "out of range", "smaller than num_classes")
    return isinstance(error.__cause__, IndexError) or any(each in str(error) for each in words)
