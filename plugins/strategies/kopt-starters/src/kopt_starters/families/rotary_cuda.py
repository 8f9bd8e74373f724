"""Rotary embeddings in CUDA C++: a thread turns a few neighbouring pairs, read in one access each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kopt.model.candidate import Knob
from kopt_starters import cuda
from kopt_starters.families.filling import filled_cuda
from kopt_starters.gpu import nearest
from kopt_starters.rendering import commented, cuda_places, identifier, template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.candidate import Candidate
    from kopt.model.device import Device
    from kopt_starters.families.positions import Element
    from kopt_starters.families.rotary import Turned
    from kopt_starters.graph import Graph, Value


class _Table(NamedTuple):
    """How a kernel finds a row's factors in a table."""

    offset: str
    """Of the row's factors, in C++, from ``row`` and the parameters."""
    parameters: dict[str, str]
    """Names that the offset needs, and what the launch plan passes for each."""
    requires: list[str]


def rotary_cuda(
    graph: Graph, found: Sequence[Turned], idea: str, device: Device
) -> Candidate | None:
    """Return the kernel of a rotary embedding; None where dtypes are mixed or names would clash."""
    given = [graph.tensor(name) for each in found for name in _names(each)]
    tensors = [tensor for tensor in given if tensor is not None]
    dtypes = {value.dtype for value in (*tensors, *graph.results)}
    if len(dtypes) != 1 or len(tensors) != len(given):
        return None
    (dtype,), width = dtypes, graph.results[0].shape[-1]
    interleaved, itemsize = found[0].interleaved, cuda.ELEMENTS[dtype].size
    piece = cuda.piece_of(itemsize, width if interleaved else width // 2)
    nbytes = 2 * itemsize * sum(result.elements for result in graph.results)
    knobs = {
        "THREADS": nearest(256, [128, 256, 512]),
        "STREAM": Knob(default=int(nbytes > device.cache_bytes), choices=(0, 1)),
    }
    plan, kernels, requires = [], [], []
    for number, turned in enumerate(found):
        out = "out" if len(found) == 1 else f"out{number}"
        launch, kernel, conditions = _part(graph, turned, number, out, piece)
        plan += launch
        kernels.append(kernel)
        requires += conditions
    places = {
        **cuda_places(dtype, piece, list(dict.fromkeys(requires)), knobs),
        "plan": commented(plan),
        "interleaved": str(interleaved).lower(),
        "pairs": str(width // 2),
        "kernels": "".join(kernels),
    }
    return filled_cuda("rotary_pairs.cu", graph, idea, knobs, places)


def _names(turned: Turned) -> tuple[str, str, str]:
    return turned.x, turned.cosine.name, turned.sine.name


def _part(
    graph: Graph, turned: Turned, number: int, out: str, piece: int
) -> tuple[list[str], str, list[str]]:
    """Return the launch, the kernel and the conditions of one result."""
    x, cosine, sine = (graph.tensor(name) for name in _names(turned))
    assert x is not None and cosine is not None and sine is not None
    name, last, width = identifier(x.name), len(x.shape) - 1, x.shape[-1]
    tables = [
        _table(x, cosine, turned.cosine, "cosine"),
        _table(x, sine, turned.sine, "sine"),
    ]
    parameters = {key: text for each in tables for key, text in each.parameters.items()}
    rows = f"prod({name}.shape[:{last}])"
    shares = width // piece if turned.interleaved else width // 2 // piece
    threads = f"{rows} * {shares}"
    kernel = template("rotary_kernel.cu").substitute(
        number=str(number),
        parameters="".join(f", unsigned {key}" for key in parameters),
        cosine=tables[0].offset,
        sine=tables[1].offset,
        places=", ".join(map(str, (cosine.shape[-1], sine.shape[-1], *turned.places))),
    )
    given = [*map(identifier, _names(turned)), out, rows, *parameters.values()]
    launch = cuda.launch(f"turn{number}", [f"cdiv({threads}, THREADS)"], ["THREADS"], given)
    own = [f"{name}.ndim == {last + 1}", f"{name}.shape[{last}] == {width}"]
    fits = f"{name}.numel < {1 << 32}"  # the kernel counts in 32 bits
    return launch, kernel, [*own, fits, *tables[0].requires, *tables[1].requires]


def _table(x: Value, table: Value, element: Element, prefix: str) -> _Table:
    """Return how the factors for a row of x are found in a contiguous table."""
    name, like, last = identifier(table.name), identifier(x.name), len(table.shape) - 1
    requires = [f"{name}.ndim == {last + 1}", f"{name}.shape[{last}] == {table.shape[-1]}"]
    terms: list[str] = []
    parameters: dict[str, str] = {}
    used: set[int] = set()
    for axis, own in enumerate(element.kept):
        if own is None or table.shape[own] == 1 != x.shape[axis]:
            continue
        used.add(own)
        requires.append(f"{name}.shape[{own}] == {like}.shape[{axis}]")
        inner = [f"x{after}" for after in range(axis + 1, len(x.shape) - 1)]
        index = " / ".join(["row", *inner])
        if axis:
            index = f"{index} % x{axis}"
            inner.append(f"x{axis}")
        parameters |= {each: f"{like}.shape[{each[1:]}]" for each in inner}
        parameters[f"{prefix}{own}"] = f"prod({name}.shape[{own + 1}:])"
        terms.append(f"size_t({index}) * {prefix}{own}")
    requires += [f"{name}.shape[{axis}] == 1" for axis in range(last) if axis not in used]
    return _Table(" + ".join(terms) or "0", parameters, requires)
