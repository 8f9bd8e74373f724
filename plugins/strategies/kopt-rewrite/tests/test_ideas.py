"""Ideas and lessons are read leniently and kept strictly."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt_rewrite.ideas import one_line, read_ideas
from kopt_rewrite.reflecting import read_lessons

ROW = {
    "title": "wide loads",
    "change": "Load 32 bytes.",
    "reason": "narrow now",
    "expects": {"latency_us": 0.5},
}
OTHER = ROW | {"title": "threads"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([ROW, OTHER]),
        json.dumps({"ideas": [ROW, OTHER]}),
        f"```json\n{json.dumps([ROW, OTHER], indent=2)}\n```",
        f"Two ideas {{really}}:\n{json.dumps(ROW)}\n\nand\n{json.dumps(OTHER)}\nThat is all.",
        json.dumps([ROW, OTHER, ROW])[:-30],
        json.dumps([ROW, OTHER | {"expects": [{"metric": "latency_us", "factor": 0.5}]}]),
    ],
    ids=["list", "object", "fence", "prose", "truncated", "expects-a-list"],
)
def test_ideas_are_found(text):
    found = read_ideas(text, 4)
    assert [idea.title for idea in found] == ["wide loads", "threads"]
    assert found[1].text == "threads: Load 32 bytes. (expects latency_us x0.5)"


def test_expectations_are_of_metrics_that_kopt_knows():
    expects = {"latency_us": 0.5, "vibes": 2, "dram_bytes": -1, "ipc": "two", "waves": float("nan")}
    [found] = read_ideas(json.dumps([ROW | {"expects": expects}]), 4)
    assert [each.text for each in found.expects] == ["latency_us x0.5"]


def test_ideas_are_bounded():
    rows = [ROW | {"title": f"idea {n} " + "x" * 500, "change": "y" * 9_000} for n in range(9)]
    found = read_ideas(json.dumps(rows), 3)
    assert len(found) == 3
    assert all(len(idea.text) < 900 and "\n" not in idea.text for idea in found)


def test_a_mark_in_an_idea_is_no_mark():
    from kopt_rewrite.lineage import marked, plain

    assert plain(marked("unroll [3:4]", 1, 2)) == "unroll"


@pytest.mark.parametrize(
    "text",
    ['[{"lesson": "a"}, {"lesson": "b"}]', '{"lessons": ["a", "b"]}', '{"lessons": [{"lesson": "a"}, {"lesson": "b"}]}'],
)  # fmt: skip
def test_lessons_are_found(text):
    assert read_lessons(text) == ["a", "b"]


def test_one_line_is_one_line():
    assert one_line("a\nb\x00`c`\u2028d", 20) == "a b c d"
    assert one_line(3, 20) == ""


@given(st.text(alphabet='{}[]":,ab\\ \n0', max_size=300))
def test_no_answer_makes_it_raise(text):
    assert len(read_ideas(text, 4)) <= 4
    assert len(read_lessons(text)) <= 4


@pytest.mark.parametrize("text", ["{" * 2_000_000, '{"a":' * 400_000, "[" * 2_000_000, '{"' + "x" * 2_000_000])  # fmt: skip
def test_two_megabytes_take_seconds_at_most(text):
    began = time.monotonic()
    assert read_ideas(text, 4) == []
    assert time.monotonic() - began < 5
