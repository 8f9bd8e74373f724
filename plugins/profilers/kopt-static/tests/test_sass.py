"""Properties of the SASS parser, on listings in the forms of both disassemblers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt_static import ptx, sass

# Opcode with its operands, the metrics that it counts for, and the width of its access.
KNOWN = [
    ("LDG.E R2, desc[UR4][R2.64]", {"global_loads"}, 4),
    ("LDG.E.128.CONSTANT R4, desc[UR4][R2.64+0x10]", {"global_loads"}, 16),
    ("LDG.E.LTC128B.64 R4, [R2.64]", {"global_loads"}, 8),
    ("LDG.E.U8.SYS R4, [R2]", {"global_loads"}, 1),
    ("STG.E.U16 desc[UR4][R2.64], R7", {"global_stores"}, 2),
    ("STG.E.ENL2.256 desc[UR8][R4.64], R8, R12", {"global_stores"}, 32),
    ("LDGSTS.E.BYPASS.128 [R5], desc[UR10][R2.64]", {"global_loads", "shared_accesses"}, 16),
    ("UBLKCP.S.G [UR12], [UR4], UR7", {"global_loads", "shared_accesses"}, None),
    ("UBLKCP.G.S [UR8], [UR12], UR7", {"global_stores", "shared_accesses"}, None),
    ("LDS.U.128 R4, [R5]", {"shared_accesses"}, None),
    ("STL.64 [R1+0x8], R4", {"local_accesses"}, None),
    ("HMMA.16816.F32 R4, R4, R6, RZ", {"tensor_instructions"}, None),
    ("HGMMA.64x8x16.F32 R24, gdesc[UR4], RZ, !UPT, gsb0", {"tensor_instructions"}, None),
    ("UTCHMMA gdesc[UR10], gdesc[UR10], tmem[UR6], UP0", {"tensor_instructions"}, None),
    ("FFMA R5, R4, 2, RZ", {"fp32_instructions"}, None),
    ("DFMA R4, R4, R6, 1", {"fp64_instructions"}, None),
    ("MUFU.EX2 R5, R4", {"special_instructions"}, None),
    ("IMAD.WIDE R4, R2, 0x10, R4", {"integer_instructions"}, None),
    ("IMAD.X R5, RZ, RZ, R7, P0", {"integer_instructions"}, None),
    ("ISETP.GE.AND P3, PT, R0, UR6, PT", {"integer_instructions"}, None),
    ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR6][R2.64], R5", {"atomic_instructions"}, None),
    ("ATOMS.ADD RZ, [R5], R4", {"atomic_instructions", "shared_accesses"}, None),
    ("BAR.SYNC.DEFER_BLOCKING 0x0", {"barriers"}, None),
    ("BRA `(.L_x_99)", {"branches"}, None),
    ("IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28]", set(), None),
    ("IMAD.U32 R4, RZ, RZ, UR5", set(), None),
    ("EXIT", set(), None),
]
NAMES = {name for _, names, _ in KNOWN for name in names}
known = st.lists(st.tuples(st.sampled_from(KNOWN), st.sampled_from(["", "@P0", "@!P3", "@UP0"])))
names = st.from_regex(r"[A-Za-z_$][\w$]{0,20}", fullmatch=True)


def nvdisasm(name, lines):
    head = [
        f'\t.section\t.text.{name},"ax",@progbits', '\t.sectionflags\t@"SHF_BARRIERS=3"',
        f"        .type           {name},@function",
        f'        .other          {name},@"STO_CUDA_ENTRY STV_DEFAULT"', f"{name}:", f".text.{name}:",
    ]  # fmt: skip
    body = [
        f"        /*{16 * at:04x}*/ {predicate:>20} {text} ;"
        for at, ((text, _, _), predicate) in enumerate(lines)
    ]
    end = 16 * len(lines)
    return "\n".join(
        [*head, *body, ".L_x_7:", f"        /*{end:04x}*/  BRA `(.L_x_7);",
         f"        /*{end + 16:04x}*/  NOP;", ".L_x_8:", ""]
    )  # fmt: skip


def cuobjdump(name, lines):
    body = [
        f"        /*{16 * at:04x}*/ {predicate:>20} {text} ;      /* 0x00000a00ff017b82 */\n"
        f"{'':>60}/* 0x000fe20000000800 */"
        for at, ((text, _, _), predicate) in enumerate(lines)
    ]
    end = 16 * len(lines)
    return "\n".join(
        ["\t\tFunction : " + name, '\t.headerflags\t@"EF_CUDA_SM90"', *body,
         f"        /*{end:04x}*/   BRA 0x{end:x};   /* 0xfffffffc00fc7947 */",
         f"        /*{end + 16:04x}*/   NOP;   /* 0x0000000000007918 */", "\t\t..........", ""]
    )  # fmt: skip


@pytest.mark.parametrize("form", [nvdisasm, cuobjdump])
@given(name=names, lines=known.filter(bool))
def test_every_instruction_counts_once_for_what_it_is(form, name, lines):
    found = sass.kernels("a heading\n" + form(name, lines))
    assert list(found) == [name]
    metrics = found[name].metrics
    assert metrics["static_instructions"] == len(lines) == sum(found[name].opcodes.values())
    for metric in NAMES:
        expected = sum(metric in kinds for (_, kinds, _), _ in lines)
        assert metrics[f"static_{metric}"] == expected
    widths = [width for (_, _, width), _ in lines if width]
    assert metrics.get("static_widest_global_bytes") == max(widths, default=None)
    assert metrics.get("static_narrowest_global_bytes") == min(widths, default=None)
    assert found[name].barriers == (3 if form is nvdisasm else None)


@given(first=known.filter(bool), second=known.filter(bool))
def test_kernels_of_one_listing_do_not_mix(first, second):
    both = sass.kernels(nvdisasm("one", first) + nvdisasm("two", second))
    assert both == sass.kernels(nvdisasm("one", first)) | sass.kernels(nvdisasm("two", second))


@given(lines=known.filter(bool))
def test_both_forms_say_the_same(lines):
    one, other = sass.kernels(nvdisasm("k", lines))["k"], sass.kernels(cuobjdump("k", lines))["k"]
    assert one.metrics == other.metrics
    assert one.opcodes == other.opcodes


@given(lines=known.filter(bool))
def test_functions_that_are_no_kernels_are_left_out(lines):
    function = nvdisasm("helper", lines).replace("STO_CUDA_ENTRY ", "")
    assert list(sass.kernels(function + nvdisasm("k", lines))) == ["k"]


@given(text=st.text(alphabet=st.sampled_from("/*0af LDG.BRA;{}@!P:`()\n\t,RZ_$.section text")))
def test_any_text_is_read(text):
    for parse in (sass.kernels, ptx.kernels):
        for code in parse(text).values():
            assert code.metrics["static_instructions"] >= 0


@given(lines=known.filter(bool), cut=st.integers(min_value=0))
def test_a_truncated_listing_counts_no_more(lines, cut):
    whole = nvdisasm("k", lines)
    total = sass.kernels(whole)["k"].opcodes
    for part in sass.kernels(whole[: cut % (len(whole) + 1)]).values():
        assert all(count <= total[opcode] for opcode, count in part.opcodes.items())
