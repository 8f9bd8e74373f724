"""The catalogue finds plugins from metadata alone and says what is wrong before any import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kopt.errors import (
    PluginConflictError,
    PluginError,
    PluginIncompatibleError,
    UnknownPluginError,
)
from kopt.plugins import catalog

EXPLODES = "raise AssertionError('the catalogue imported a plugin')\n"


def names(role: str) -> list[str]:
    return [info.name for info in catalog.installed(role)]


def test_lists_what_metadata_says_without_importing_it(distributions: Any) -> None:
    distributions.add(
        "acme-kopt",
        "1.2.0",
        plugins={"strategy.unroll": "acme_mod:Unroll", "backend.acme": "acme_mod:Backend"},
        modules={"acme_mod": EXPLODES},
    )
    infos = [i for i in catalog.installed() if i.distribution == "acme-kopt"]
    assert [(i.role, i.name, i.version, i.target) for i in infos] == [
        ("strategy", "unroll", "1.2.0", "acme_mod:Unroll"),
        ("backend", "acme", "1.2.0", "acme_mod:Backend"),
    ]
    assert infos[0].reference == "acme-kopt:unroll"
    assert infos[0].label == "strategy 'unroll' (acme-kopt 1.2.0)"
    assert "acme_mod" not in sys.modules


def test_one_role_only(distributions: Any) -> None:
    distributions.add("acme-kopt", plugins={"strategy.unroll": "m:A", "llm.acme": "m:B"})
    assert "acme" in names("llm")
    assert "unroll" not in names("llm")


def test_other_groups_and_other_distributions_are_left_alone(distributions: Any) -> None:
    distributions.add("other", entry_points="[console_scripts]\nkopt = m:f\n[koptx.llm]\nx = m:f\n")
    assert all(info.distribution != "other" for info in catalog.installed())


def test_a_distribution_installed_just_now_is_seen(distributions: Any) -> None:
    assert "late" not in names("judge")
    distributions.add("late-kopt", plugins={"judge.late": "m:A"})
    assert "late" in names("judge")


def test_a_shadowed_distribution_is_no_conflict(
    distributions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributions.add("kopt-alpha", "2.0", plugins={"backend.alpha": "m:A"})
    behind = tmp_path / "behind"
    distributions.add("Kopt_Alpha", "1.0", plugins={"backend.alpha": "m:A"}, site=behind)
    monkeypatch.setattr(sys, "path", [*sys.path, str(behind)])
    assert catalog.find("backend", "alpha").version == "2.0"


def test_find_by_name_and_in_full(distributions: Any) -> None:
    distributions.add("kopt-alpha", plugins={"backend.alpha": "m:A"})
    assert catalog.find("backend", "alpha").distribution == "kopt-alpha"
    assert catalog.find("backend", "Kopt_Alpha:alpha").name == "alpha"


def test_unknown_name_suggests_the_closest(distributions: Any) -> None:
    distributions.add("kopt-beta", plugins={"backend.beta": "m:A"})
    distributions.hide_others()
    with pytest.raises(UnknownPluginError) as caught:
        catalog.find("backend", "betta")
    assert str(caught.value) == (
        "no backend named 'betta' is installed; did you mean 'beta'? (installed: beta; "
        "see `kopt plugins`)"
    )


def test_first_party_names_come_with_their_distribution(distributions: Any) -> None:
    distributions.hide_others()
    with pytest.raises(UnknownPluginError, match=r"\(try: pip install kopt-triton\)$"):
        catalog.find("backend", "triton")
    with pytest.raises(UnknownPluginError, match=r"'triton'\? \(try: pip install kopt-triton\)$"):
        catalog.find("backend", "Tritn")
    with pytest.raises(UnknownPluginError, match="pip install kopt-search"):
        catalog.find("search", "greedy")


@pytest.mark.parametrize("typed", ["acme", "kopt-evil", "evil:kopt-evil", "tritonn-gpu-x"])
def test_what_was_typed_is_never_part_of_a_pip_line(distributions: Any, typed: str) -> None:
    distributions.hide_others()
    with pytest.raises(UnknownPluginError) as caught:
        catalog.find("backend", typed)
    _, _, command = str(caught.value).partition("pip install")
    assert typed not in command


def test_right_name_in_the_wrong_distribution(distributions: Any) -> None:
    distributions.add("kopt-alpha", plugins={"backend.alpha": "m:A"})
    with pytest.raises(UnknownPluginError, match=r"did you mean 'kopt-alpha:alpha'\?"):
        catalog.find("backend", "acme:alpha")


def test_unknown_role() -> None:
    with pytest.raises(UnknownPluginError, match=r"no role named 'backnd' \(did you mean 'backend"):
        catalog.installed("backnd")
    with pytest.raises(UnknownPluginError, match="roles are profiler, judge"):
        catalog.find("backnd", "cpp")


def test_conflict_names_the_distributions_and_the_way_out(distributions: Any) -> None:
    distributions.add("kopt-alpha", "0.1.0", plugins={"backend.alpha": "m:A"})
    distributions.add("acme-kopt", "1.2.0", plugins={"backend.alpha": "m:B"})
    with pytest.raises(PluginConflictError) as caught:
        catalog.find("backend", "alpha")
    assert str(caught.value) == (
        "backend 'alpha' is provided by acme-kopt 1.2.0 and kopt-alpha 0.1.0; name one of them in "
        "full: acme-kopt:alpha or kopt-alpha:alpha"
    )
    assert catalog.find("backend", "acme-kopt:alpha").target == "m:B"


def test_one_distribution_that_declares_a_name_twice(distributions: Any) -> None:
    distributions.add("acme-kopt", entry_points="[kopt.backend]\nalpha = m:A\nalpha = m:B\n")
    with pytest.raises(PluginConflictError, match=r"declared twice by acme-kopt 0\.1\.0; ask its"):
        catalog.find("backend", "acme-kopt:alpha")


def test_incompatible_names_requirement_and_version_found(distributions: Any) -> None:
    distributions.add(
        "kopt-old",
        plugins={"backend.old": "old_mod:A"},
        requires=["kopt<0.1", "no-such-dist-at-all>=3.4"],
        modules={"old_mod": EXPLODES},
    )
    with pytest.raises(PluginIncompatibleError) as caught:
        catalog.find("backend", "old")
    assert str(caught.value).startswith(
        "backend 'old' (kopt-old 0.1.0) needs kopt<0.1 (found 0.2.0), "
        "no-such-dist-at-all>=3.4 (not installed); install "
    )
    assert "old_mod" not in sys.modules


def test_requirements_of_extras_and_other_platforms_do_not_count(distributions: Any) -> None:
    distributions.add(
        "kopt-fine",
        plugins={"backend.fine": "m:A"},
        requires=[
            "no-such-dist-at-all; extra == 'gpu'",
            "no-such-dist-at-all; python_version < '3'",
            "kopt~=0.2.0",
            "pydantic",
        ],
    )
    assert catalog.find("backend", "fine").unmet == ()


def test_a_requirement_that_cannot_be_read_is_reported(distributions: Any) -> None:
    distributions.add("kopt-odd", plugins={"backend.odd": "m:A"}, requires=["kopt ~~ 1"])
    with pytest.raises(PluginIncompatibleError, match=r"kopt ~~ 1 \(which is not a valid requi"):
        catalog.find("backend", "odd")


def test_unreadable_entry_points_name_their_distribution(distributions: Any) -> None:
    distributions.add("kopt-torn", entry_points="[kopt.backend]\nno equals sign here\n")
    with pytest.raises(PluginError, match=r"kopt-torn 0\.1\.0: its entry_points\.txt cannot be re"):
        catalog.installed()


def test_first_party_keys_are_roles_with_our_distributions() -> None:
    for key, distribution in catalog.FIRST_PARTY.items():
        assert key.partition(".")[0] in catalog.ROLES
        assert distribution.startswith("kopt-")


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys, kopt\n"
        "from kopt.plugins import catalog\n"
        "from kopt.cli.plugins import show_plugins\n"
        "infos = catalog.installed()\n"
        "assert show_plugins(None, False, True) == 0\n"
        "assert show_plugins(None, False, False) == 0\n"
        "plugins = {i.target.partition(':')[0] for i in infos}\n"
        "heavy = plugins | {'torch', 'triton', 'cupy', 'openai', 'numpy', 'pluggy', 'stevedore',"
        " 'structlog', 'pydantic'}\n"
        "loaded = sorted(heavy & set(sys.modules))\n"
        "assert not loaded, loaded\n"
        "assert infos\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
