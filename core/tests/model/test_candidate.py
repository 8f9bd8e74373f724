"""A candidate whose knobs were found in its source: its text, its identity, its journal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.errors import KernelFileError
from kopt.model.candidate import Candidate, Edit, Knob
from kopt.model.kernel_file import parse_kernel, settled_source

SOURCE = "BLOCK = 64  # größe\nlaunch(BLOCK)\n"


def found(source: str = SOURCE) -> Candidate:
    """Return a candidate with a value that is rewritten and one that is inserted."""
    at, end = source.index("64"), source.index(")")
    return Candidate(language="x", source=source, entry="f").with_knobs({
        "BLOCK": Knob(
            default=64, choices=(32, 64, 1024),
            edits=(Edit(start=at, end=at + 2, texts=("32", "64", "1024")),),
        ),
        "warps": Knob(
            default=4, choices=(4, 8), edits=(Edit(start=end, end=end, texts=("", ", warps=8")),)
        ),
    })  # fmt: skip


def test_at_its_defaults_the_text_is_the_source() -> None:
    assert found().text == settled_source(found()) == SOURCE


def test_chosen_values_are_written_where_they_were_found() -> None:
    chosen = found().with_values("test", BLOCK=1024, warps=8)
    assert chosen.text == "BLOCK = 1024  # größe\nlaunch(BLOCK, warps=8)\n"
    assert settled_source(chosen) == chosen.text
    assert chosen.source == SOURCE


def test_settings_of_one_source_share_its_structure_and_have_ids_of_their_own() -> None:
    plain = Candidate(language="x", source=SOURCE, entry="f")
    settings = [found().with_values("test", BLOCK=size) for size in (32, 64, 1024)]
    assert {each.structure for each in settings} == {plain.structure}
    assert len({each.id for each in settings}) == 3
    assert settings[1].id == found().id


def test_it_comes_back_from_json_as_it_was() -> None:
    chosen = found().with_values("test", BLOCK=32)
    again = Candidate.model_validate_json(chosen.model_dump_json())
    assert (again.id, again.text) == (chosen.id, chosen.text)


@pytest.mark.parametrize(("start", "end"), [(8, 9), (9, 12), (0, 99), (12, 11), (32, 32)])
def test_edits_may_not_overlap_nor_leave_the_source(start: int, end: int) -> None:
    knob = Knob(default=1, choices=(1,), edits=(Edit(start=start, end=end, texts=("1",)),))
    with pytest.raises(ValueError, match="lies over another or outside"):
        found().with_knobs({**found().knobs, "other": knob})


def test_an_edit_has_a_text_for_each_choice() -> None:
    with pytest.raises(ValueError, match="not one text for each"):
        Knob(default=1, choices=(1, 2), edits=(Edit(start=0, end=1, texts=("1",)),))


def test_a_header_declares_no_edits() -> None:
    source = "# /// kopt\n# knobs.N = {default = 1, choices = [1], edits = []}\n# ///\n"
    with pytest.raises(KernelFileError, match="default and choices only"):
        parse_kernel(source, "triton")


@given(st.data())
def test_any_edits_change_their_places_and_nothing_else(data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.text(min_size=1, max_size=4), max_size=9))
    knobs, at = {}, 0
    for number, piece in enumerate(pieces):
        texts = (piece, data.draw(st.text(max_size=4)))
        edit = Edit(start=at, end=at + len(piece), texts=texts)
        at += len(piece)
        if number % 2:
            knobs[f"K{number}"] = Knob(default=0, choices=(0, 1), edits=(edit,))
    source = "".join(pieces)
    candidate = Candidate(language="x", source=source, entry="f").with_knobs(knobs)
    assert candidate.text == source
    values = {name: data.draw(st.sampled_from([0, 1])) for name in knobs}
    expected = [
        knobs[f"K{n}"].edits[0].texts[values[f"K{n}"]] if n % 2 else piece
        for n, piece in enumerate(pieces)
    ]
    assert candidate.with_values("test", **values).text == "".join(expected)
