"""Texts for prompts, found by bottleneck and feature in data folders that anybody can add to."""

from __future__ import annotations

import functools
import tomllib
from importlib import metadata, resources, util
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kopt.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kopt.model.device import Device
    from kopt.model.diagnosis import Diagnosis
    from kopt.model.problem import Signature

GROUP = "kopt.knowledge"
"""Entry points of this group name a package, or ``package:folder``, whose ``*.md`` are read."""
_MOST_CHARACTERS = 8_000
_KEYS = frozenset({"title", "bottlenecks", "features", "languages", "devices"})
_FEATURES: dict[str, tuple[str, ...]] = {
    "product": ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "mv", "dot", "einsum"),
    "convolution": ("convolution", "conv"),
    "attention": ("scaled_dot_product", "attention"),
    "softmax": ("softmax",),
    "normalisation": ("norm", "rsqrt", "var_mean", "std"),
    "reduction": (
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "prod",
        "argmax",
        "logsumexp",
        "var",
    ),
    "scan": ("cumsum", "cumprod", "cummax", "logcumsumexp", "flip"),
    "pooling": ("pool",),
    "gather": ("embedding", "gather", "index", "scatter"),
    "special-functions": (
        "exp",
        "log",
        "tanh",
        "erf",
        "gelu",
        "sigmoid",
        "silu",
        "sin",
        "cos",
        "pow",
    ),
    "elementwise": ("add", "mul", "sub", "div", "relu", "where", "clamp", "neg", "maximum"),
}


class Text(NamedTuple):
    """One text with what it is about."""

    name: str
    title: str
    body: str
    bottlenecks: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    """Empty: any."""
    devices: tuple[str, ...] = ()
    """``cpu``, ``cuda`` or an architecture as ``sm_90``; empty: any."""


class Query(NamedTuple):
    """What texts are looked for."""

    language: str
    device: Device
    bottlenecks: Sequence[str] = ()
    """What costs most first."""
    features: Sequence[str] = ()


def features_of(signature: Signature) -> list[str]:
    """Return what kinds of operators a reference is made of, by the names that texts use."""
    words = {call.name.split(".")[1 if "." in call.name else 0] for call in signature.first.trace}
    return [
        feature for feature, marks in _FEATURES.items()
        if any(word.strip("_") == m or (len(m) > 3 and m in word) for word in words for m in marks)
    ]  # fmt: skip


def bottlenecks_of(diagnoses: Iterable[Diagnosis]) -> list[str]:
    """Return the bottlenecks of some diagnoses, what costs most first, each once."""
    found: dict[str, None] = {}
    for diagnosis in diagnoses:
        for name in (diagnosis.bottleneck, *(each.bottleneck for each in diagnosis.findings)):
            found.setdefault(name)
    return list(found)


def retrieve(texts: Sequence[Text], query: Query, most: int) -> list[Text]:
    """Return the texts that fit best: guides of the language and device, bottlenecks, features.

    A text for another language or device is never taken, one that fits nothing neither.
    """
    scored = [(_score(text, query), text) for text in texts]
    fitting = sorted((-score, text.name, text) for score, text in scored if score > 0)
    return [text for _, _, text in fitting[:most]]


def _score(text: Text, query: Query) -> float:
    places = {query.device.kind, query.device.architecture}
    if text.languages and query.language not in text.languages:
        return 0.0
    if text.devices and places.isdisjoint(text.devices):
        return 0.0
    score = 0.0
    for rank, bottleneck in enumerate(query.bottlenecks):
        if bottleneck in text.bottlenecks:
            score = max(score, 8.0 / (1 + rank))
    score += len(set(text.features) & set(query.features))
    if not text.bottlenecks and not text.features:
        score += 3.0 if text.languages else 2.5  # a guide
    return score


def load(folders: Sequence[Path]) -> list[Text]:
    """Return the texts of the user's folders, of installed distributions, and our own.

    Of texts with the same name the first counts. Raises PluginError where a file cannot be read.
    """
    found: dict[str, Text] = {}
    places = [
        *folders,
        *_installed_folders(),
        Path(str(resources.files("kopt_rewrite") / "knowledge")),
    ]
    for folder in places:
        if not folder.is_dir():
            raise PluginError(
                f"the knowledge folder {folder} does not exist; see the option 'knowledge'"
            )
        for path in sorted(folder.glob("*.md")):
            found.setdefault(path.stem, read_text(path))
    return list(found.values())


def _installed_folders() -> Iterator[Path]:
    """Yield the folders that distributions declare; nothing of them is imported."""
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        package, _, folder = entry.value.partition(":")
        top, *rest = package.split(".")
        spec = util.find_spec(top)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(place).joinpath(*rest, *filter(None, [folder]))


@functools.cache
def read_text(path: Path) -> Text:
    """Return a text file's content: TOML between two lines ``+++``, then the text."""
    try:
        content = path.read_text(encoding="utf-8")
        begin, front, body = content.split("+++\n", 2)
        about = tomllib.loads(front)
    except (OSError, ValueError) as error:
        raise PluginError(
            f"{path} is no knowledge text ({error}); begin it with '+++', a title and what it is "
            "about in TOML, and '+++'"
        ) from error
    strange = sorted(set(about) - _KEYS)
    if begin.strip() or strange or not isinstance(about.get("title"), str):
        said = f"unknown keys {', '.join(strange)}" if strange else "no title, or text before it"
        raise PluginError(f"{path} is no knowledge text: {said}")
    lists = {key: _words(path, key, about.get(key, [])) for key in _KEYS - {"title"}}
    return Text(path.stem, about["title"], body.strip()[:_MOST_CHARACTERS], **lists)


def _words(path: Path, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise PluginError(f"{path}: {key} has to be a list of strings")
    return tuple(value)
