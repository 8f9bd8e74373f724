"""What a function returned, as leaves and a name."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch

from kopt_torch.structure import flatten

A, B, C = (torch.full((2,), float(i)) for i in range(3))
Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("result", "structure", "leaves"),
    [
        (None, "none", []),
        (A, "tensor", [A]),
        ((A, B), "tuple:2", [A, B]),
        ([A, B], "list:2", [A, B]),
        ((A,), "tuple:1", [A]),
        ((), "tuple:0", []),
        (Pair(A, B), "tuple:2", [A, B]),
        ({"b": A, "a": B}, "dict:b,a", [A, B]),
        ((A, (B, C)), "tuple:2[tensor;tuple:2]", [A, B, C]),
        ((A, None), "tuple:2[tensor;none]", [A]),
        ([{"x": A}, B], "list:2[dict:x;tensor]", [A, B]),
        ("PASS", "other:str", []),
        (object(), "other:object", []),
        (A.to_sparse(), "other:sparse_coo", []),
    ],
)
def test_leaves_and_structure(result, structure, leaves):
    found, name = flatten(result)
    assert name == structure
    assert len(found) == len(leaves)
    assert all(have is want for have, want in zip(found, leaves, strict=True))


@pytest.mark.parametrize("number", [True, 3, 2.5])
def test_a_number_is_a_leaf_of_its_own_kind(number):
    (leaf,), structure = flatten(number)
    assert structure == "scalar"
    assert leaf.item() == number
    assert leaf.shape == ()


def test_different_results_have_different_names():
    results = [None, A, (A,), [A], {"a": A}, {"b": A}, (A, B), ((A, B),), (A, (B,)), 3]
    names = [flatten(result)[1] for result in results]
    assert len(set(names)) == len(names)
