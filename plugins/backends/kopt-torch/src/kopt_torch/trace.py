"""What operators a reference runs, with their data flow."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from kopt.model.problem import Operand, OperatorCall
from kopt_torch.drawing import Draw
from kopt_torch.structure import flatten
from kopt_torch.work import operations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt_torch.source import ReferenceFunction

_MOST_CALLS = 2000


def trace(
    function: ReferenceFunction, drawn: Draw, state: dict[str, torch.Tensor]
) -> tuple[OperatorCall, ...]:
    """Run a reference on the shapes of its arguments; what cannot run so has no trace."""
    with contextlib.suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True) as fake:

        def faked(value: Any) -> Any:
            return fake.from_tensor(value) if isinstance(value, torch.Tensor) else value

        values = [faked(value) for value in drawn.values]
        keywords = {name: faked(value) for name, value in drawn.keywords.items()}
        fake_state = {name: faked(value) for name, value in state.items()}
        return traced(function, Draw(drawn.names, values, keywords), fake_state)[0]
    return ()


def traced(
    function: ReferenceFunction, drawn: Draw, state: dict[str, torch.Tensor]
) -> tuple[tuple[OperatorCall, ...], Any]:
    """Run a reference, on tensors of any kind; return its operators and its result."""
    named = {**dict(zip(drawn.names, drawn.values, strict=True)), **drawn.keywords, **state}
    mode = TraceMode({n: v for n, v in named.items() if isinstance(v, torch.Tensor)})
    with _in_parts(), mode:
        result = function(drawn.values, drawn.keywords, state)
    leaves, _ = flatten(result)
    if len(leaves) > 1:
        mode.rename(leaves)
    return tuple(mode.calls), result


@contextlib.contextmanager
def _in_parts() -> Iterator[None]:
    """Let transformer layers run as the operators that they are made of."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class TraceMode(TorchDispatchMode):
    """Records each aten operator: names of its inputs and outputs, shapes, other arguments."""

    def __init__(self, named: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self._names = {id(tensor): name for name, tensor in named.items()}
        self._kept: list[torch.Tensor] = list(named.values())
        self.calls: list[OperatorCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and write it down; in inference mode, what it is made of."""
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # composite operators arrive whole there alone
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        held = _held(func, args)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if outputs and len(self.calls) < _MOST_CALLS:  # others only ask, as prim.device does
            leaves = tree_leaves([args, kwargs])
            flops, dtype = operations(func, args, kwargs, result)
            inputs = tuple(self._name(x) for x in leaves if isinstance(x, torch.Tensor))
            self.calls.append(
                OperatorCall(
                    name=str(func),
                    inputs=inputs,
                    outputs=tuple(self._name(x) for x in outputs),
                    shapes=tuple(tuple(x.shape) for x in outputs),
                    scalars=_scalars(args, kwargs),
                    operands=tuple(self._operand(x) for x in args) if held is None else (held,),
                    keywords={name: self._operand(x) for name, x in kwargs.items()},
                    dtypes=tuple(str(x.dtype).removeprefix("torch.") for x in outputs),
                    flops=flops,
                    dtype=dtype,
                )
            )
        return result

    def rename(self, results: list[torch.Tensor]) -> None:
        """Give each of several results that an operator made its output's name, as ``out1``."""
        made = {name for call in self.calls for name in call.outputs if name.startswith("%")}
        names: dict[str, str] = {}
        for number, tensor in enumerate(results):
            if (name := self._names.get(id(tensor), "")) in made:
                names.setdefault(name, f"out{number}")
        self.calls = [
            call.model_copy(
                update={
                    "inputs": tuple(names.get(name, name) for name in call.inputs),
                    "outputs": tuple(names.get(name, name) for name in call.outputs),
                    "operands": tuple(_renamed(each, names) for each in call.operands),
                    "keywords": {k: _renamed(each, names) for k, each in call.keywords.items()},
                }
            )
            for call in self.calls
        ]

    def _operand(self, value: Any) -> Operand:
        if isinstance(value, torch.Tensor):
            return Operand(tensor=self._name(value))
        if isinstance(value, list | tuple):
            if any(isinstance(item, torch.Tensor) for item in value):
                return Operand(items=tuple(self._operand(item) for item in value))
            return Operand(value=tuple(_plain(item) for item in value))
        return Operand(value=_plain(value))

    def _name(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self._names:
            self._kept.append(tensor)  # so that its id stays its own
            self._names[id(tensor)] = f"%{len(self._names)}"
        return self._names[id(tensor)]


def _held(func: Any, args: Any) -> Operand | None:
    """Return the number of a tensor that the reference makes, as ``torch.tensor(0.5)``; else None."""
    if func is not torch.ops.aten.lift_fresh.default or args[0].dim() or args[0].is_complex():
        return None
    # Fake tensors have no content, but for what they were made from here.
    made = getattr(args[0], "constant", args[0])
    with contextlib.suppress(Exception), _disable_current_modes():
        return Operand(value=made.item())
    return None


def _renamed(operand: Operand, names: dict[str, str]) -> Operand:
    items = tuple(_renamed(item, names) for item in operand.items)
    tensor = names.get(operand.tensor, operand.tensor)
    return operand.model_copy(update={"tensor": tensor, "items": items})


def _scalars(args: Any, kwargs: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    for value in [*args, *(kwargs or {}).values()]:
        if isinstance(value, torch.Tensor):
            continue
        if isinstance(value, list | tuple):
            if any(isinstance(item, torch.Tensor) for item in value):
                continue
            found.append(tuple(_plain(item) for item in value))
        else:
            found.append(_plain(value))
    return tuple(found)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
