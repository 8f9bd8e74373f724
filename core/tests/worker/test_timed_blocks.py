"""Which launches a block makes before its results are looked at."""

from hypothesis import given
from hypothesis import strategies as st

from kopt.worker.trial import ending_elsewhere


@given(st.integers(1, 300), st.integers(1, 8), st.data())
def test_a_block_reaches_every_set_and_ends_on_another_than_the_one_looked_at(launches, sets, data):
    place = data.draw(st.integers(0, sets - 1))
    made = ending_elsewhere(launches, sets, place)
    visited = [number % sets for number in range(made)]
    assert set(visited) == set(range(sets))
    assert launches <= made <= max(launches, sets) + 1
    assert sets == 1 or visited[-1] != place
