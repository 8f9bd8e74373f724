"""Convolutions with what follows them, at other leading extents."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families.convolution import ConvolutionFamily
from kopt_starters.families.vendor import Vendor
from kopt_starters.pipeline.channels import ChannelReductions
from kopt_starters.pipeline.tidying import tidied

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
CONVOLUTION = SimpleNamespace(
    **runpy.run_path(str(Path(__file__).with_name("test_convolution.py")))
)

DENSE = {"x": (7, 6, 5, 8), "w": (5, 6, 3, 3), "c": (5, 1, 1), "y": (7, 5, 3, 6)}
PHASES = {"x": (7, 18, 3, 4), "w": (18, 5, 3, 2), "c": (5, 1, 1), "y": (7, 5, 7, 8)}
DEPTHWISE = {"x": (7, 6, 5, 8), "w": (6, 1, 3, 3), "c": (6, 1, 1), "p": (5, 6, 1, 1)}
FUSED = {
    "torch.relu(F.conv2d(x, w)) * 0.3 + c": DENSE,
    "torch.sigmoid(F.conv2d(x, w) - c).permute(0, 2, 3, 1)": DENSE,
    "(F.conv2d(x, w) * y).flatten(1)": DENSE,
    "torch.tanh(F.conv_transpose2d(x, w, stride=2) + c) * y": PHASES,
    "torch.relu(F.conv2d(x, w, groups=6)) + c": DEPTHWISE,
    "torch.relu(F.conv2d(F.conv2d(x, w, groups=6), p)) * 0.3": DEPTHWISE,
    "F.conv2d(x, w).flatten() * 0.3": DENSE,
    "torch.softmax(F.conv2d(x, w) + c, 1)": DENSE,
    "(F.conv2d(x, w) * y).amax(1)": DENSE,
}
"""Bodies with shapes; tensors that begin with 7 have the images."""
OWN_ALONE = {
    "torch.relu(F.conv2d(x, w)) / x.shape[0]": DENSE,
    "F.conv2d(x, w).transpose(0, 1) * 0.3": DENSE,
    "(F.conv2d(x, w) + c).sum(1) / x.numel()": DENSE,
}


def read(body, shapes):
    return {name: shape for name, shape in shapes.items() if re.search(rf"\b{name}\b", body)}


def proposed(graph_of, body, shapes):
    """Return the candidates of every family that writes kernels for a convolution."""
    graph = graph_of(f"def reference({', '.join(shapes)}): return {body}", **shapes)
    families = [ConvolutionFamily(), Vendor(), ChannelReductions()]
    plain = tidied(graph)
    return [
        c for f in families for c in f.propose(plain if f is families[2] else graph, CHECK.TARGET)
    ]


def at(images, shapes):
    generator = torch.Generator().manual_seed(5)
    changed = [(images, *s[1:]) if s[0] == 7 else s for s in shapes.values()]
    return [torch.randn(shape, generator=generator) for shape in changed]


def calculated(body, shapes, arguments):
    function = eval(f"lambda {', '.join(shapes)}: {body}", {"F": F, "torch": torch})
    return function(*(value.double() for value in arguments))


@pytest.mark.parametrize("body", FUSED)
def test_what_follows_a_convolution_holds_for_fewer_images(graph_of, body):
    shapes = read(body, FUSED[body])
    found = proposed(graph_of, body, shapes)
    assert found
    for candidate in found:
        chosen = CONVOLUTION.small(candidate)
        for images in (1, 5, 7):
            arguments = at(images, shapes)
            got = CHECK.interpreted(candidate, *arguments, **chosen)
            CHECK.assert_accurate(got, calculated(body, shapes, arguments), 200)
        nothing = at(0, shapes)
        if candidate.language == "torch":
            with pytest.raises(ValueError, match="only"):
                CHECK.interpreted(candidate, *nothing, **chosen)
        else:
            got = CHECK.interpreted(candidate, *nothing, **chosen)
            assert got.shape == calculated(body, shapes, nothing).shape


@pytest.mark.parametrize("body", FUSED)
def test_what_differs_otherwise_is_refused(graph_of, body):
    shapes = read(body, FUSED[body])
    for candidate in proposed(graph_of, body, shapes):
        x, *others = at(7, shapes)
        refused = [(x[:, :, 1:], *others), (torch.cat([x, x]), *others), (x[:, 1:], *others)]
        if "y" in body:
            refused += [(x[:6], *others), (x, *(v[:6] if len(v) == 7 else v for v in others))]
        refused.append((x, others[0][:3], *others[1:]))
        for arguments in refused:
            with pytest.raises(ValueError, match="only"):
                CHECK.interpreted(candidate, *arguments)


@pytest.mark.parametrize("body", OWN_ALONE)
def test_what_holds_for_its_own_number_of_images_alone(graph_of, body):
    shapes = read(body, OWN_ALONE[body])
    for candidate in proposed(graph_of, body, shapes):
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *at(5, shapes))
