"""A problem's reference as something to call: a function, a module or a pickled callable."""

from __future__ import annotations

import base64
import contextlib
import copy
import inspect
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.func import functional_call

from kopt.errors import ProblemError, lack_of_memory
from kopt_torch.modules import import_source

if TYPE_CHECKING:
    from kopt.model.problem import Problem


class ReferenceFunction:
    """What computes the expected results, with its module state apart."""

    def __init__(self, problem: Problem, device: str) -> None:
        self._problem = problem
        self.device = device
        self.get_inputs: Callable[[], Any] | None = None
        self.init: list[Any] = []
        self._module: torch.nn.Module | None = None
        self._double: torch.nn.Module | None = None
        with as_problem_error(problem):
            self._load()

    def _load(self) -> None:
        source = self._problem.reference
        if source.kind == "pickled":
            import cloudpickle

            loaded = cloudpickle.loads(base64.b64decode(source.source))
            self._function = loaded
            if isinstance(loaded, torch.nn.Module):
                # As for KernelBench: what is made faster is inference, without dropout and with
                # the statistics that a BatchNorm has learned.
                self._module = loaded.to(self.device).eval()
            return
        with tempfile.TemporaryDirectory(prefix="kopt-reference-") as folder:
            module = import_source(source.source, Path(folder), Path(source.filename).name)
        if source.kind == "kernelbench":
            self._load_kernelbench(module)
        else:
            self._function = getattr(module, source.entry)

    def _load_kernelbench(self, module: Any) -> None:
        self.get_inputs = module.get_inputs
        init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
        self.init = list(init)
        torch.manual_seed(0)
        with torch.device(self.device):
            self._module = getattr(module, self._problem.reference.entry)(*self.init)
        tensors = [*self._module.parameters(), *self._module.buffers()]
        if any(tensor.device.type != self.device for tensor in tensors):
            self._module.to(self.device)  # fake tensors that are there already cannot be moved
        self._module.eval()

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers of the module, by name; empty for a function."""
        return dict(self._module.state_dict()) if self._module is not None else {}

    def parameter_names(self) -> list[str]:
        """Names of the positional parameters, as far as the signature tells."""
        target = self._module.forward if self._module is not None else self._function
        try:
            parameters = inspect.signature(target).parameters.values()
        except (TypeError, ValueError):
            return []
        return [
            p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]

    def __call__(
        self, arguments: list[Any], keywords: Mapping[str, Any], state: dict[str, torch.Tensor]
    ) -> Any:
        """Run it as the user does."""
        with torch.no_grad(), as_problem_error(self._problem):
            if self._module is None:
                return self._function(*arguments, **keywords)
            return functional_call(self._module, state, tuple(arguments), dict(keywords))

    def in_float64(
        self, arguments: list[Any], keywords: Mapping[str, Any], state: dict[str, torch.Tensor]
    ) -> Any:
        """Run it with every floating tensor in float64, casts inside it included."""
        from kopt_torch.float64 import Float64Mode, widened

        with torch.no_grad(), as_problem_error(self._problem), _double_default(), Float64Mode():
            args, kwargs = widened(arguments), widened(dict(keywords))
            if self._module is None:
                return self._function(*args, **kwargs)
            if self._double is None:
                self._double = copy.deepcopy(self._module).double()
            return functional_call(self._double, widened(state), tuple(args), kwargs)


@contextlib.contextmanager
def _double_default() -> Iterator[None]:
    """Let constants that a reference makes without a dtype be float64 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def as_problem_error(problem: Problem, what: str = "the reference") -> Iterator[None]:
    """Raise ProblemError for what a user's code raises; ``what`` of a problem it is."""
    try:
        yield
    except ProblemError:
        raise
    except torch.cuda.OutOfMemoryError as error:
        raise ProblemError(
            f"problem {problem.name!r} finds no memory on this device: {lack_of_memory(str(error))}"
        ) from error
    except (Exception, SystemExit) as error:
        raise ProblemError(
            f"{what} of problem {problem.name!r} raised {type(error).__name__}: {error}"
            f"{_where(error, problem)}"
        ) from error


def _where(error: BaseException, problem: Problem) -> str:
    """Return the line of the user's file that raised, for the end of a sentence; empty: none."""
    frames = traceback.extract_tb(error.__traceback__)
    name = problem.reference.filename
    lines = [frame.lineno for frame in frames if Path(frame.filename).name == Path(name).name]
    return f" ({name}, line {lines[-1]})" if lines else ""
