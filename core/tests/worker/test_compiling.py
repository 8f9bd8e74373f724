"""Compiling ahead: nobody's verdict, whatever happens in it."""

from __future__ import annotations

import pytest

from kopt.model.reference import InputSet
from kopt.testing.plain_problem import candidate as plain
from kopt.testing.plain_problem import right
from kopt.worker.compiling import AheadCompiler
from kopt.worker.pool import ProcessRecipe


@pytest.fixture
def compiler(recipe: ProcessRecipe, started):
    return AheadCompiler(recipe, "sm_90", 2, 2.0)


@pytest.mark.parametrize(
    "source",
    [
        right(1),  # its backend compiles nothing ahead
        plain("pass", before="this is no Python"),
        plain("pass", before="import os; os.abort()"),
        plain("pass", before="while True: pass"),
    ],
    ids=["no-compiler", "syntax", "dies", "hangs"],
)
def test_what_fails_is_told_where_it_counts(compiler, started, source, inputs: InputSet):
    compiler.compile(source, [inputs.call])
    compiler.compile(right(2), [inputs.call])
    assert len(started()) <= 2


def test_no_more_processes_than_workers(recipe: ProcessRecipe, started, inputs: InputSet):
    compiler = AheadCompiler(recipe, "sm_90", 1, 2.0)
    for number in range(3):
        compiler.compile(right(number), [inputs.call])
    assert len(started()) == 1


def test_what_was_compiled_is_known_again_at_other_addresses(compiler, inputs: InputSet):
    call = inputs.call
    assert not compiler.done(right(1), call)
    compiler.compile(right(1), [call])
    moved = call.model_copy(update={"outputs": tuple(
        each.model_copy(update={"segment": each.segment + 7, "offset": each.offset + 4096})
        for each in call.outputs
    )})  # fmt: skip
    odd = call.model_copy(update={"outputs": tuple(
        each.model_copy(update={"offset": each.offset + 4}) for each in call.outputs
    )})  # fmt: skip
    assert compiler.done(right(1), call)
    assert compiler.done(right(1), moved)
    assert not compiler.done(right(1), odd)
    assert not compiler.done(right(2), call)
