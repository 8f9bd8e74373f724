"""Tiles, warps, stages and programs of products by their sizes, for a GPU with wide tensor cores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters.gpu import nearest, power_of_two
from kopt_starters.hardware import operands_in_registers, sums_in_tensor_memory

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt_starters.products.matching import Product

_PARTIAL_BYTES = 1 << 30
"""Memory that partial sums may take."""
_HALVED_USES = 256
"""Multiplications with each element of an operand from which on laying it out anew is soon made up for
(by what both ways take on an H200)."""
_STRIP = {2: (64, 128, 8, 8, 3), 4: (128, 64, 16, 4, 3)}
"""Rows and columns of a tile, tiles, warps and stages of a strip, by bytes per element (as timed on an
H200)."""
DEEPEST_STRIP = 128
"""The depth up to which strips are tried, as most of the time goes into writing (timed at 32 and 64)."""
_SHORT = 128
"""The depth up to which the small products of all of it come first, as nothing is summed in pieces."""
_HALVED_BYTES = 8 << 30
"""Memory that operands laid out anew may take."""


@dataclass(frozen=True)
class Sizes:
    """What knobs depend on."""

    batches: int
    rows: int
    columns: int
    depth: int
    itemsize: int
    device: Device
    widest: int = 128
    """Columns of a tile that accumulators and what follows them leave registers for."""
    along: bool = True
    """Whether the right operand lies in memory along the depth."""
    uneven: bool = False
    """Whether some tiles are skipped: a fixed share of them is not a fair one."""
    ragged: bool = False
    """Whether rows of an operand are read element by element, as they begin anywhere."""

    @classmethod
    def of(cls, product: Product, device: Device) -> Sizes:
        """Return the sizes of a product."""
        itemsize = 4 if product.left.tensor.dtype == "float32" else 2
        # Rows that are not aligned are stored element by element, which takes registers too.
        roomy = itemsize == 2 and product.stride(3, "m") % 8 == 0 and not product.laborious
        batches, rows, columns, depth = (product.size[group] for group in "bmnk")
        along = product.stride(1, "k") == 1
        widest, uneven = widest_tile(itemsize, device, roomy=roomy), product.triangle is not None
        lines = [product.stride(at, group) for at in (0, 1) for group in ("mk", "kn")[at]]
        ragged = any(step > 1 and step * itemsize % 4 for step in lines)
        return cls(
            batches, rows, columns, depth, itemsize, device, widest, along, uneven, ragged
        )  # fmt: skip

    @property
    def units(self) -> int:
        """Multiprocessors of the device."""
        return self.device.units

    @property
    def in_registers(self) -> bool:
        """Whether operands take registers from the sums."""
        return operands_in_registers(self.device)

    @property
    def crowded(self) -> bool:
        """Whether what is read element by element leaves too few registers for long steps."""
        elsewhere = self.in_registers or sums_in_tensor_memory(self.device)
        return self.ragged and elsewhere

    def tiles(self, high: int, wide: int) -> int:
        """Return how many tiles of that size the result has."""
        return self.batches * -(-self.rows // high) * -(-self.columns // wide)


def widest_tile(itemsize: int, device: Device, *, roomy: bool) -> int:
    """Return the columns of a tile 128 high that registers are enough for.

    :param roomy: whether few of them are needed for anything but sums.
    """
    if operands_in_registers(device):
        return 64 if itemsize == 4 else 128
    return 256 if roomy else 128


def _limited(extent: int, most: int) -> int:
    """Return a block that is not much longer than an extent; tensor cores take 16 at least."""
    return min(most, max(16, power_of_two(extent)))


def default_tile(sizes: Sizes) -> tuple[int, int]:
    """Return rows and columns of a tile: large, but small enough that every unit has one."""
    high = _limited(sizes.rows, 128)
    wide = _limited(sizes.columns, sizes.widest)
    while sizes.tiles(high, wide) < sizes.units and high * wide > 64 * 64:
        high, wide = (high, wide // 2) if wide >= high else (high // 2, wide)
    return high, wide


def _precision(sizes: Sizes) -> Knob:
    """Return how float32 is multiplied, at its own accuracy in any case.

    Tensor cores take two TF32 parts along depth only, three bfloat16 parts either way: those are
    the default where it matters, though only Triton 3.6 and later know them. Tensor memory is taken
    either way, and too small for the six sums that Triton has of three parts.
    """
    if sums_in_tensor_memory(sizes.device):
        return Knob(default="tf32x3", choices=("tf32x3", "ieee"))
    large = sizes.batches * sizes.rows * sizes.columns * sizes.depth >= 1 << 32
    parts = "bf16x6" if large and not sizes.along else "tf32x3"
    return Knob(default=parts, choices=("tf32x3", "bf16x6", "ieee"))


def tile_knobs(sizes: Sizes, *, tile: tuple[int, int] | None = None) -> dict[str, Knob]:
    """Return the knobs of every tiled kernel."""
    high, wide = tile or default_tile(sizes)
    single = sizes.itemsize == 4
    most = _limited(sizes.depth, 32 if single else 64)
    deep = max(16, most // 2) if sizes.crowded else most
    knobs = {
        "BLOCK_M": _around(high, _limited(sizes.rows, 128)),
        "BLOCK_N": _around(wide, _limited(sizes.columns, 128 if single else 256)),
        "BLOCK_K": Knob(default=deep, choices=tuple(sorted({max(16, most // 2), most}))),
    }
    if single:
        knobs["PRECISION"] = _precision(sizes)
    few = high * wide < (128 * 64 if sizes.in_registers else 128 * 128)
    short = sizes.depth <= 2 * most
    knobs["num_warps"] = Knob(default=4 if few else 8, choices=(4, 8))
    knobs["num_stages"] = Knob(default=2 if short else 3, choices=(2, 3, 4))
    return knobs


def block_knobs(sizes: Sizes) -> dict[str, Knob]:
    """Return the knobs of the tiled kernels in CUDA C++: what a block has, and of it a warp."""
    single = sizes.itemsize == 4
    high, wide = default_tile(replace(sizes, widest=128))
    if single:  # a warp is 4 threads high and 8 wide, and each has elements in fours
        wide = max(32, wide)
        warp = min(32, high), 64 if wide >= 128 else 32
    else:
        warp = max(16, high // 2), max(16, wide // 2)
    deep = _limited(sizes.depth, 16 if single else 32)
    wider = 128 if single else 256
    stages = 2 if sizes.depth <= 2 * deep else 3
    return {
        "BLOCK_M": _around(high, _limited(sizes.rows, 128)),
        "BLOCK_N": _around(wide, max(wide, _limited(sizes.columns, wider))),
        "BLOCK_K": nearest(deep, {deep, 2 * deep}),
        "WARP_M": nearest(warp[0], {warp[0], 16, 32} if single else {warp[0], 32, 64}),
        "WARP_N": nearest(warp[1], {warp[1], 32, 64}),
        "STAGES": nearest(stages, {2, 3, 4}),
        "GROUP": nearest(8, {4, 8, 16}),
    }


def _around(default: int, most: int) -> Knob:
    choices = {max(16, min(default, most // 2)), max(16, default // 2), default, most}
    return Knob(default=default, choices=tuple(sorted(choices)[-3:]))


def _programs(sizes: Sizes) -> Knob:
    """Return the knob of how many programs walk over the tiles; at most as many as there are."""
    units = sizes.units
    if sizes.uneven:
        return Knob(default=1 << 16, choices=(2 * units, 1 << 16))
    return Knob(default=units, choices=(units, 2 * units))


def persistent_knobs(sizes: Sizes) -> dict[str, Knob]:
    """Return the knobs of kernels whose fixed grid walks over the tiles."""
    return {
        **tile_knobs(sizes),
        "PROGRAMS": _programs(sizes),
        "FLATTEN": Knob(default=True, choices=(True, False)),
    }


def strip_knobs(sizes: Sizes) -> dict[str, Knob]:
    """Return the knobs of a product of a short depth, in strips of TILES tiles."""
    high, wide, tiles, warps, stages = _STRIP[sizes.itemsize]
    return {
        "BLOCK_M": Knob(default=high, choices=(64, 128)),
        "BLOCK_N": Knob(default=wide, choices=(64, 128, 256)),
        "TILES": Knob(default=tiles, choices=(4, 8, 16, 32)),
        "num_warps": Knob(default=warps, choices=(4, 8)),
        "num_stages": Knob(default=stages, choices=(2, 3, 4)),
    }


def copied_knobs(sizes: Sizes) -> dict[str, Knob]:
    """Return the knobs of kernels that read aligned copies: wide tiles, written in halves."""
    wide = 128 if sizes.itemsize == 4 else 256
    return persistent_knobs(replace(sizes, widest=wide))


def halved_knobs(sizes: Sizes) -> dict[str, Knob]:
    """Return the knobs of kernels that lay both operands out anew first, in float16."""
    # Tensor memory has a second tile of sums for each piece of the depth, and both are read.
    widest = 64 if sums_in_tensor_memory(sizes.device) else 128
    high, wide = _limited(sizes.rows, 128), _limited(sizes.columns, widest)
    short, programs, warps = sizes.depth <= _SHORT, _programs(sizes), 8
    stages = 4 if short else 3
    if _SHORT < sizes.depth <= 2 * _SHORT:  # there is more to begin and to end than between
        wide, warps, stages, short = min(wide, 64), 4, 2, True
        programs = programs.model_copy(update={"default": programs.choices[-1]})
    return {
        "BLOCK_M": _around(high, high),
        "BLOCK_N": _around(wide, _limited(sizes.columns, widest)),
        "PROGRAMS": programs,
        "FLATTEN": Knob(default=short, choices=(True, False)),
        "num_warps": Knob(default=warps, choices=(4, 8)),
        "num_stages": Knob(default=stages, choices=(2, 3, 4) if stages == 4 else (2, 3)),
    }


def halving_pays(sizes: Sizes) -> bool:
    """Whether every element of an operand is used so often that laying it out anew pays."""
    used = sizes.rows * sizes.columns / (sizes.rows + sizes.columns)
    scratch = 4 * sizes.batches * sizes.depth * (sizes.rows + sizes.columns)
    large = sizes.tiles(128, 64) > sizes.units
    return sizes.itemsize == 4 and large and used >= _HALVED_USES and scratch <= _HALVED_BYTES


def split_tile(sizes: Sizes) -> tuple[int, int]:
    """Return a tile that is large, as parts of the depth fill the device."""
    return _limited(sizes.rows, 128), _limited(sizes.columns, min(128, sizes.widest))


def parts_wanted(sizes: Sizes) -> int:
    """Return how many programs should share the depth of a tile; 1 where it is not worth it."""
    tiles = sizes.tiles(*split_tile(sizes))
    block = 32 if sizes.itemsize == 4 else 64
    most = sizes.depth // (4 * block)
    room = _PARTIAL_BYTES // (4 * sizes.batches * sizes.rows * sizes.columns)
    return max(1, min(-(-sizes.units // tiles), most, room))


def split_knobs(sizes: Sizes) -> dict[str, Knob]:
    """Return the knobs of kernels that split the depth."""
    wanted = parts_wanted(sizes)
    choices = {max(1, wanted // 2), wanted, 2 * wanted}
    knobs = {**tile_knobs(sizes, tile=split_tile(sizes)), "PARTS": nearest(wanted, choices)}
    if sizes.itemsize == 2:
        knobs["num_warps"] = Knob(default=4, choices=(4, 8))
    # Few programs on a multiprocessor: each has to have much under way.
    most = 4 if sizes.itemsize == 4 else 5
    return {**knobs, "num_stages": Knob(default=most, choices=(3, 4, 5))}


def vector_knobs(sizes: Sizes, *, along: bool) -> dict[str, Knob]:
    """Return the knobs of a matrix-vector product.

    :param along: whether the matrix lies in memory along the depth, not along its rows.
    """
    if along:
        block = min(2048 if sizes.itemsize == 4 else 4096, max(16, power_of_two(sizes.depth)))
        strip = max(1, min(power_of_two(sizes.rows), 8192 // block, 256))
        blocks = {max(16, block // 2), block}
        rows = {max(1, strip // 4), max(1, strip // 2), strip}
    else:
        strip = min(256, max(16, power_of_two(sizes.rows)))
        block = max(1, min(power_of_two(sizes.depth), 4096 // strip))
        blocks = {max(1, block // 2), block}
        rows = {max(16, strip // 2), strip}
    programs = sizes.batches * -(-sizes.rows // strip)
    most = max(1, sizes.depth // (4 * block))
    parts = max(1, min(-(-4 * sizes.units // programs), most))
    return {
        "ROWS": nearest(strip, rows),
        "BLOCK": nearest(block, blocks),
        "PARTS": nearest(parts, {1, max(1, parts // 2), parts, min(most, 2 * parts)}),
        "num_warps": nearest(8 if strip * block > 2048 else 4, {4, 8}),
    }
