"""What is installed, from distribution metadata alone: no plugin is imported here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from kopt.errors import (
    PluginConflictError,
    PluginError,
    PluginIncompatibleError,
    UnknownPluginError,
)

ROLES = (
    "profiler", "judge", "strategy", "backend", "verifier", "search", "llm", "executor", "format",
    "exporter",
)  # fmt: skip
"""Every role; the entry-point group of a role is ``kopt.<role>``."""

FIRST_PARTY = {
    "backend.cpp": "kopt-cpp",
    "backend.cuda": "kopt-cuda",
    "backend.torch": "kopt-torch",
    "backend.triton": "kopt-triton",
    "executor.ray": "kopt-ray",
    "judge.llm": "kopt-rewrite",
    "judge.roofline": "kopt-roofline",
    "llm.mailbox": "kopt-mailbox",
    "llm.openai": "kopt-openai",
    "llm.replay": "kopt-replay",
    "profiler.ncu": "kopt-ncu",
    "profiler.perf": "kopt-perf",
    "profiler.static": "kopt-static",
    "profiler.torchprof": "kopt-torchprof",
    "search.beam": "kopt-search",
    "search.greedy": "kopt-search",
    "strategy.autotune": "kopt-autotune",
    "strategy.rewrite": "kopt-rewrite",
    "strategy.skills": "kopt-skills",
    "strategy.starters": "kopt-starters",
    "verifier.verify": "kopt-verify",
}
"""``role.name`` to distribution. Install hints come from here only, never from what was typed:
a misspelt name in a pip line is how somebody else's package gets installed."""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """One plugin: an entry point of a ``kopt.<role>`` group, or an instance a caller passed."""

    role: str
    name: str
    distribution: str
    """Empty for an instance whose class is no installed entry point."""
    version: str
    target: str
    """``module:Class``."""
    entry_point: metadata.EntryPoint | None = field(default=None, compare=False, repr=False)
    unmet: tuple[str, ...] = ()
    """Requirements that are not met, as ``kopt<0.1 (found 0.2.0)``."""

    @property
    def reference(self) -> str:
        """The name in full, ``distribution:name``; the bare name for an instance."""
        return f"{self.distribution}:{self.name}" if self.distribution else self.name

    @property
    def source(self) -> str:
        """Distribution and version, or the class of an instance."""
        if self.distribution:
            return f"{self.distribution} {self.version}"
        return f"an instance of {self.target}"

    @property
    def label(self) -> str:
        """How messages name it, as ``backend 'cpp' (kopt-cpp 0.2.0)``."""
        return f"{self.role} {self.name!r} ({self.source})"


def installed(role: str | None = None) -> list[PluginInfo]:
    """Return every installed plugin, or those of one role, by role, name and distribution.

    Reads the disk each time, so that a plugin installed a moment ago is seen.
    Raises UnknownPluginError where there is no such role, PluginError where the metadata of a
    distribution cannot be read.
    """
    if role is not None:
        check_role(role)
    found = [info for dist in _distributions() for info in _plugins_of(dist, role)]
    return sorted(found, key=lambda i: (ROLES.index(i.role), i.name, i.distribution))


def find(role: str, reference: str, among: Sequence[PluginInfo] | None = None) -> PluginInfo:
    """Return the plugin that ``reference`` means: ``name`` or ``distribution:name``.

    ``among`` is an earlier answer of ``installed``; without it the disk is read.
    Raises UnknownPluginError, PluginConflictError or PluginIncompatibleError.
    """
    check_role(role)
    plugins = [info for info in (installed() if among is None else among) if info.role == role]
    distribution, _, name = reference.rpartition(":")
    matches = [info for info in plugins if info.name == name]
    if distribution:
        wanted = canonicalize_name(distribution)
        matches = [info for info in matches if canonicalize_name(info.distribution) == wanted]
    if not matches:
        raise UnknownPluginError(_unknown(role, reference, name, plugins))
    if len(matches) > 1:
        raise PluginConflictError(_conflict(matches))
    chosen = matches[0]
    if chosen.unmet:
        raise PluginIncompatibleError(_incompatible(chosen))
    return chosen


def check_role(role: str) -> None:
    """Raise UnknownPluginError unless ``role`` is one of ROLES."""
    if role not in ROLES:
        hint = did_you_mean(role, ROLES)
        raise UnknownPluginError(f"no role named {role!r}{hint}; roles are {', '.join(ROLES)}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest known word, or nothing."""
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def conflicts(plugins: Sequence[PluginInfo]) -> set[tuple[str, str]]:
    """Return each (role, name) that more than one of ``plugins`` has."""
    keys = [(info.role, info.name) for info in plugins]
    return {key for key in keys if keys.count(key) > 1}


def _distributions() -> Iterator[metadata.Distribution]:
    """Yield the distributions with plugins; one that a path entry before shadows is left out."""
    seen: set[str] = set()
    for dist in metadata.distributions():
        # Looking for the text first leaves the metadata of hundreds of others unparsed.
        if "[kopt." not in (dist.read_text("entry_points.txt") or ""):
            continue
        name = canonicalize_name(_name(dist))
        if name not in seen:
            seen.add(name)
            yield dist


def _name(dist: metadata.Distribution) -> str:
    name: str | None = dist.metadata["Name"]
    if name is None:
        raise PluginError(
            "a distribution with kopt plugins has no name in its metadata; its installation is "
            "damaged: run `pip check` and install it again"
        )
    return name


def _plugins_of(dist: metadata.Distribution, role: str | None) -> Iterator[PluginInfo]:
    name = _name(dist)
    try:
        entries = list(dist.entry_points)
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"{name} {dist.version}: its entry_points.txt cannot be read ({error}); install it "
            "again or uninstall it"
        ) from error
    unmet = _unmet(dist)
    for entry in entries:
        prefix, _, entry_role = entry.group.partition(".")
        if prefix == "kopt" and entry_role in ROLES and role in (None, entry_role):
            yield PluginInfo(
                entry_role, entry.name, name, dist.version, entry.value, entry, unmet
            )  # fmt: skip


def _unmet(dist: metadata.Distribution) -> tuple[str, ...]:
    """Return what ``dist`` requires, without extras, and does not get."""
    problems = (_problem(text) for text in dist.requires or ())
    return tuple(problem for problem in problems if problem)


def _problem(text: str) -> str | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return f"{text} (which is not a valid requirement)"
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        return None
    wanted = f"{requirement.name}{requirement.specifier}"
    try:
        found = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{wanted} (not installed)"
    try:
        met = requirement.specifier.contains(Version(found), prereleases=True)
    except InvalidVersion:
        met = not requirement.specifier
    return None if met else f"{wanted} (found {found})"


def _unknown(role: str, reference: str, name: str, plugins: Sequence[PluginInfo]) -> str:
    message = f"no {role} named {reference!r} is installed"
    names = {info.name for info in plugins}
    ours = {key.partition(".")[2] for key in FIRST_PARTY if key.startswith(f"{role}.")}
    elsewhere = [repr(info.reference) for info in plugins if info.name == name]
    meant = name
    if elsewhere:  # the name is right, the distribution is not
        message += f"; did you mean {' or '.join(elsewhere)}?"
    elif name not in ours:
        close = difflib.get_close_matches(name.lower(), sorted(names | ours), n=1)
        meant = close[0] if close else ""
        message += f"; did you mean {meant!r}?" if meant else ""
    if meant in ours - names:
        return f"{message} (try: pip install {FIRST_PARTY[f'{role}.{meant}']})"
    return f"{message} (installed: {', '.join(sorted(names)) or 'none'}; see `kopt plugins`)"


def _conflict(matches: Sequence[PluginInfo]) -> str:
    role, name = matches[0].role, matches[0].name
    references = list(dict.fromkeys(info.reference for info in matches))
    if len(references) == 1:
        return (
            f"{role} {name!r} is declared twice by {matches[0].source}; ask its authors for a "
            "release that declares it once"
        )
    providers = " and ".join(info.source for info in matches)
    return (
        f"{role} {name!r} is provided by {providers}; name one of them in full: "
        f"{' or '.join(references)}"
    )


def _incompatible(info: PluginInfo) -> str:
    return (
        f"{info.label} needs {', '.join(info.unmet)}; install what it needs or another release "
        f"of {info.distribution} (`pip check` lists every such case)"
    )
