"""What replies turn out to be: a corpus of what models send, and whatever else may come."""

from __future__ import annotations

import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopt.model.kernel_file import parse_kernel
from kopt.runs.completions import read_exchange
from kopt.testing.strategy import a_parent
from kopt_rewrite.replies import POLICIES, Outcome, Policy, Wanted, read_reply

FOLDER = Path(__file__).parent / "replies"
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text(encoding="utf-8"))
KERNEL = a_parent().candidate


def wanted(language: str = "cpp", *, parent: bool = False) -> Wanted:
    """What a reply is read for: a change of the row sum, or a first kernel."""
    if parent:
        return Wanted(language, KERNEL, KERNEL.source, ("x",))
    return Wanted(language, arguments=("x",))


def test_the_corpus_is_complete():
    names = {path.name for path in FOLDER.iterdir()} - {"expected.toml"}
    assert names == set(EXPECTED)
    assert len(names) >= 40
    assert {row["outcome"] for row in EXPECTED.values()} | {"too-long"} == set(Outcome)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_reply_is_what_a_reader_would_say_that_it_is(name):
    row = EXPECTED[name]
    text = (FOLDER / name).read_bytes().decode("utf-8")
    language = row.get("language", "cpp")
    reading = read_reply(
        text, wanted(language, parent=row.get("parent", False)), finish=row.get("finish", "stop")
    )
    assert reading.outcome == row["outcome"], reading.detail
    if reading.usable:
        candidate = parse_kernel(reading.source, language)
        assert candidate.entry == "row_sum"
        assert row.get("contains", "") in reading.source
        assert "lacks" not in row or row["lacks"] not in reading.source
        assert not reading.detail
    else:
        assert reading.detail


def test_every_outcome_has_a_policy():
    assert set(POLICIES) == set(Outcome)
    assert set(POLICIES.values()) == set(Policy)


BIG = 2_000_000


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("word " * (BIG // 5), Outcome.NO_CODE),
        ("```" * (BIG // 3), Outcome.NO_CODE),
        ("```cpp\n" * (BIG // 7), Outcome.TOO_LONG),
        ("{" * BIG, Outcome.NO_CODE),
        ("[" * BIG, Outcome.NO_CODE),
        ('{"code":' * (BIG // 8), Outcome.NO_CODE),
        ('It is {"code":' + '{"code":' * 62 + "[" + "0," * (BIG // 2), Outcome.NO_CODE),
        ('It is {"code":' + '{"code":' * 62 + "[" + "0," * 299_000, Outcome.NO_CODE),
        ("It is " + '{"code": "x"} ' * (BIG // 14), Outcome.NO_CODE),
        ("/*" * (BIG // 2), Outcome.NO_CODE),
        ("<<<<<<< SEARCH\n" * (BIG // 15), Outcome.TRUNCATED),
        ("<pre>" * (BIG // 5), Outcome.NO_CODE),
        ("```cpp\n" + KERNEL.source + "// more\n" * (BIG // 8) + "```\n", Outcome.TOO_LONG),
        ("word " * (BIG // 5) + "\n```cpp\n" + KERNEL.source + "```\n", Outcome.MODULE),
        ("import torch\n" + "x" * BIG, None),
        ("#include <x>\n" + "(" * BIG, None),
        ("#include <x>\n" + '"' * BIG, None),
        ("\n" * BIG, Outcome.EMPTY),
        ("a\n" * (BIG // 2), Outcome.NO_CODE),
        ("extern \"C\" " * (BIG // 11), None),
        ("\n".join(f"{number} | x" for number in range(BIG // 11)), Outcome.NO_CODE),
        ("7 x\n" * (BIG // 4), Outcome.NO_CODE),
        ("<<<<<<< SEARCH\n" + "1 " * (BIG // 2) + "\n=======\n>>>>>>> REPLACE\n", None),
        ("It is " + '[{"search": "' * (BIG // 13), Outcome.NO_CODE),
        ("It is " + '[{"search": "' * 40_000, Outcome.NO_CODE),
        ("<think>" * (BIG // 7), Outcome.EMPTY),
    ],
    ids=range(26),
)  # fmt: skip
def test_two_megabytes_take_no_more_than_their_time(text, outcome):
    began = time.monotonic()
    reading = read_reply(text, wanted())
    read_reply(text, wanted(parent=True))
    read_reply(text, wanted("triton"))
    assert time.monotonic() - began < 12  # less than a second each where nothing else runs
    assert outcome in (None, reading.outcome)
    assert outcome is not None or not reading.usable


PIECES = st.sampled_from([
    "1 | ", "2 | x", "3\tint y;", "4", "L5: }", "1 2 3 4", '[{"search": "', '", "replace": "', '"}]',
    "<thinking>", "<reasoning>",
    "<tool_call>", '{"arguments": "', '"{\\"code\\": \\"', '#include "/', "%:", "\\\n",
    "```", "```cpp", "```python", "~~~", "````", "\n", "\r\n", "<<<<<<< SEARCH", "=======",
    ">>>>>>> REPLACE", "@@ -1 +1 @@", "-a", "+b", "{", "}", '{"code": "', '"}', "<pre><code>",
    "</code></pre>", "&lt;", "<think>", "</think>", "// /// kopt", "// ///", "# /// kopt",
    'entry = "row_sum"', '// entry = "row_sum"', 'extern "C" void f(float* x) {}', "def f(x):",
    "import triton", "\x00", "\ud800", "\u2028", "#include <cstdint>", "// [knobs]", "// X = 1",
    "// [[launch]]", "// launch = 3", "// knobs = [1]", "// flags = 1", "// entry = 3", "(" * 300,
    KERNEL.source,
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.one_of(PIECES, st.text(max_size=30)), max_size=20),
    st.sampled_from(["\n", " ", ""]),
    st.sampled_from(["cpp", "cuda", "triton", "torch"]),
    st.booleans(),
    st.sampled_from(["stop", "length", "unknown"]),
)
def test_no_text_makes_it_raise(pieces, between, language, parent, finish):
    text = between.join(pieces)
    reading = read_reply(text, wanted(language, parent=parent), finish=finish)
    assert reading == read_reply(text, wanted(language, parent=parent), finish=finish)
    if reading.usable:
        parse_kernel(reading.source, language)
    else:
        assert reading.detail


def test_a_small_models_answers_are_read():
    """Recorded of a model of 135 million parameters: it follows the form without understanding it."""
    found = Counter()
    for path in sorted((Path(__file__).parent / "recorded" / "small_model").glob("*.json")):
        exchange = read_exchange(path)
        reading = read_reply(
            exchange.completion.text, Wanted("cpp", arguments=("x", "weight")),
            finish=exchange.completion.finish,
        )  # fmt: skip
        found[str(reading.outcome)] += 1
    assert found == {"module": 1, "truncated": 4, "no-code": 1, "no-entry": 1}
