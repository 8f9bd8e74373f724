"""The plugin: profiles a candidate by what its compiler made of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kopt
from kopt.env import cuda_homes
from kopt.model.check import Check
from kopt.model.diagnosis import Profile
from kopt_static import listed
from kopt_static.kernels import of_function, profile_of

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt.model.diagnosis import KernelProfile
    from kopt.model.evaluation import Evaluation
    from kopt.model.probe import Probe
    from kopt_static.listed import Listings

_NAME = "static"
_TOOLS = ("nvdisasm", "cuobjdump")
_CPU_LANGUAGES = {"cpp"}


class Static:
    """Occupancy, access widths and kinds of instructions, without a GPU and without running."""

    class Options(kopt.Options):
        """It has no options."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say whether GPU code can be read as SASS here, or as PTX only."""
        found = next(_disassemblers(), None)
        if found:
            return [Check(name="disassembler", state="ok", detail=found)]
        return [
            Check(
                name="disassembler", state="warn",
                detail=f"no {' and no '.join(_TOOLS)}: GPU kernels are read as PTX only",
                fix="install the CUDA toolkit's nvdisasm, or `pip install triton`",
            )
        ]  # fmt: skip

    @kopt.hookimpl
    def kopt_profile(self, evaluation: Evaluation, device: Device, probe: Probe) -> Profile | None:
        """Return one profile per kernel; None where nothing was built."""
        if evaluation.build is None:
            return None
        if evaluation.candidate.language in _CPU_LANGUAGES:
            listings = listed.of_cpu(probe)
            kernels = _functions(listings, evaluation.candidate.entry)
            notes: list[str] = []
        else:
            listings = listed.of_gpu(probe)
            built = evaluation.build.resources.get("kernels", ())
            kernels, notes = _kernels(built, listings, device, probe)
        return Profile(
            profiler=_NAME, candidate=evaluation.id, kernels=tuple(kernels),
            notes=(*listings.notes, *dict.fromkeys(notes)),
        )  # fmt: skip


def _functions(listings: Listings, entry: str) -> list[KernelProfile]:
    """Return the functions of a listing, the entry first."""
    made = [of_function(each.symbol, each.code) for each in listings.functions]
    return sorted(made, key=lambda each: each.name != entry)


def _kernels(
    built: Sequence[dict[str, Any]], listings: Listings, device: Device, probe: Probe
) -> tuple[list[KernelProfile], list[str]]:
    """Return the kernels of a build in its order; those of a listing where a build names none."""
    if not built and listings.functions:
        made = [of_function(each.symbol, each.code) for each in listings.functions]
        return made, ["the build names no kernels: nothing but their code is known"]
    launched, notes = listings.launched(built, probe)
    found: list[KernelProfile] = []
    for kernel, code in launched:
        if code is None and listings.functions:
            notes.append(f"{kernel['name']}: its code is not told apart in the listing")
        profile, said = profile_of(kernel, code, device)
        found.append(profile)
        notes += said
    return found, notes


def _disassemblers() -> Iterator[str]:
    """Yield paths of what prints SASS, from the places in which backends look."""
    folders: list[str | None] = [None]  # PATH
    folders += [str(Path(home) / "bin") for home in (*cuda_homes(), "/usr/local/cuda", "/opt/cuda")]
    spec = find_spec("triton")
    for place in (spec.submodule_search_locations if spec else None) or ():
        folders.append(str(Path(place) / "backends" / "nvidia" / "bin"))
    for tool in _TOOLS:
        for folder in folders:
            if path := shutil.which(tool, path=folder):
                yield path
