"""A convolution as an operator of the graph gives it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from kopt_starters.graph import Value

if TYPE_CHECKING:
    from kopt_starters.graph import Given, Node

Three: TypeAlias = tuple[int, int, int]

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""What kernels are written for, with bytes per element."""


@dataclass(frozen=True)
class Convolution:
    """A convolution over 1 to 3 dimensions; the geometry has three entries, the last innermost."""

    x: Value
    weight: Value
    bias: Value | None
    output: Value
    stride: Three
    padding: Three
    dilation: Three
    extra: Three
    """Output padding of a transposed convolution."""
    groups: int
    transposed: bool
    tf32: bool | None = None
    """Whether the reference was seen to be done in TF32; None: nobody looked."""

    @property
    def kernel(self) -> Three:
        """Taps of each dimension."""
        return _three(self.weight.shape[2:], 1)

    @property
    def taps(self) -> int:
        """Taps of all dimensions."""
        return prod(self.kernel)

    @property
    def extent(self) -> Three:
        """Extents of the result."""
        return _three(self.output.shape[2:], 1)

    @property
    def cin(self) -> int:
        """Input channels of a group."""
        return self.x.shape[1] // self.groups

    @property
    def cout(self) -> int:
        """Output channels of a group."""
        return self.output.shape[1] // self.groups

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return DTYPES[self.x.dtype]

    @property
    def kept_exact(self) -> bool:
        """Whether cuDNN computes it without TF32 although it may, so that TF32 is less accurate.

        Where nobody looked: as on an H200 with cuDNN of PyTorch 2.11, for groups, and for few
        channels in three dimensions. (For others too: which ones is not known beforehand.)
        """
        if self.tf32 is not None:
            return self.itemsize == 4 and not self.tf32
        few = len(self.output.shape) == 5 and self.cin % 4 > 0
        return self.itemsize == 4 and (self.groups > 1 or few)

    @property
    def tensors(self) -> tuple[Value, ...]:
        """Everything that it reads."""
        return (self.x, self.weight) if self.bias is None else (self.x, self.weight, self.bias)

    @property
    def pointwise(self) -> bool:
        """Each result depends on one place of the input, the same one."""
        unit = (1, 1, 1)
        same = self.stride == unit and not any([*self.padding, *self.extra])
        return self.kernel == unit and same and not self.transposed

    @property
    def pixels(self) -> int:
        """Places of the result, over all images."""
        return self.output.shape[0] * prod(self.extent)


def _three(values: tuple[int, ...], missing: int) -> Three:
    first, second, third = (missing,) * (3 - len(values)) + values
    return first, second, third


def convolution_of(node: Node, tf32: bool | None = None) -> Convolution | None:
    """Return the convolution that an operator is; None for another, or one that is not understood.

    As aten.convolution is given: input, weight, bias, stride, padding, dilation, transposed,
    output_padding, groups. ``tf32``: whether it was seen to be done in TF32.
    """
    if node.operator != "convolution" or len(node.given) != 9:
        return None
    x, weight, bias, stride, padding, dilation, transposed, extra, groups = node.given
    if not (isinstance(x, Value) and isinstance(weight, Value) and isinstance(groups, int)):
        return None
    if not isinstance(bias, Value | None) or not 3 <= len(x.shape) <= 5:
        return None
    dims, output = len(x.shape) - 2, node.output
    strides, paddings = _geometry(stride, dims, 1), _geometry(padding, dims, 0)
    dilations, extras = _geometry(dilation, dims, 1), _geometry(extra, dims, 0)
    if strides is None or paddings is None or dilations is None or extras is None:
        return None
    tensors = [x, weight, output, *([bias] if bias is not None else [])]
    fits = x.dtype in DTYPES and len(weight.shape) == len(output.shape) == len(x.shape)
    if not fits or any(tensor.dtype != x.dtype or not tensor.elements for tensor in tensors):
        return None
    return Convolution(
        x, weight, bias, output, strides, paddings, dilations, extras, groups, transposed is True,
        tf32,
    )  # fmt: skip


def _geometry(given: Given, dims: int, missing: int) -> Three | None:
    """Return one entry per dimension as three; one entry stands for all of them."""
    values = given if isinstance(given, tuple) else (given,)
    numbers = tuple(value for value in values if isinstance(value, int))
    if len(numbers) == 1:
        numbers *= dims
    whole = len(numbers) == dims and len(numbers) >= len(values)
    return _three(numbers, missing) if whole and min(numbers) >= missing else None
