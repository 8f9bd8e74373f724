"""The loader makes an instance or says which plugin is at fault and what to do."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import kopt
from kopt.errors import (
    PluginInterfaceError,
    PluginLoadError,
    PluginOptionsError,
    PluginUnavailableError,
)
from kopt.plugins.loader import PluginRef, adopt, load

UNROLL = """
import kopt

class Unroll:
    class Options(kopt.Options):
        factors: tuple[int, ...] = (2, 4, 8)
        opt_level: int = 3
        key: str = ""

    def __init__(self, options):
        self.options = options

class Plain:
    pass

class PlainWithOptions:
    def __init__(self, options):
        self.options = options

def function(options):
    return options
"""


@pytest.fixture
def unroll(distributions: Any) -> None:
    distributions.add(
        "acme-kopt",
        "1.2.0",
        plugins={
            "strategy.unroll": "unroll_mod:Unroll",
            "strategy.plain": "unroll_mod:Plain",
            "strategy.plain2": "unroll_mod:PlainWithOptions",
            "strategy.function": "unroll_mod:function",
        },
        requires=["kopt~=0.2.0"],
        modules={"unroll_mod": UNROLL},
    )


def broken(distributions: Any, source: str, target: str = "broken_mod:Plugin") -> None:
    distributions.add(
        "kopt-broken", plugins={"backend.broken": target}, modules={"broken_mod": source}
    )


@pytest.mark.usefixtures("unroll")
class TestLoad:
    def test_makes_the_plugin_with_validated_options(self) -> None:
        plugin = load("strategy", "unroll", {"factors": [2, 4]})
        assert plugin.instance.options.factors == (2, 4)  # type: ignore[attr-defined]
        assert plugin.info.source == "acme-kopt 1.2.0"

    def test_the_reference_is_full_and_can_be_pickled(self) -> None:
        ref = load("strategy", "unroll", {"factors": [2]}).ref
        assert ref == PluginRef("strategy", "acme-kopt:unroll", {"factors": [2]})
        assert pickle.loads(pickle.dumps(ref)) == ref

    def test_a_class_without_options_is_made_without_arguments(self) -> None:
        assert type(load("strategy", "plain", {}).instance).__name__ == "Plain"

    def test_a_class_without_options_that_wants_some_gets_empty_ones(self) -> None:
        instance = load("strategy", "plain2", {}).instance
        assert instance.options == kopt.Options()  # type: ignore[attr-defined]

    def test_a_class_without_options_accepts_none(self) -> None:
        with pytest.raises(PluginOptionsError) as caught:
            load("strategy", "plain", {"depth": 3})
        assert str(caught.value) == (
            "strategy 'plain' (acme-kopt 1.2.0) takes no options (given: 'depth'); remove them"
        )

    def test_all_problems_of_options_are_in_one_message(self) -> None:
        with pytest.raises(PluginOptionsError) as caught:
            load("strategy", "unroll", {"opt_level": "much", "factor": [2], "nope": 1})
        assert str(caught.value) == (
            "strategy 'unroll' (acme-kopt 1.2.0): factor: unknown option (did you mean "
            "'factors'?); nope: unknown option; opt_level: Input should be a valid integer, unable "
            "to parse string as an integer; options are: factors, key, opt_level"
        )

    def test_values_stay_out_of_the_message(self) -> None:
        with pytest.raises(PluginOptionsError) as caught:
            load("strategy", "unroll", {"key": 12345678})
        assert "12345678" not in str(caught.value)

    def test_an_entry_point_has_to_be_a_class(self) -> None:
        with pytest.raises(PluginInterfaceError, match="'unroll_mod:function' is a function, not"):
            load("strategy", "function", {})


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("assert False, 'no such chip'", "AssertionError: no such chip"),
        ("class Stop(BaseException): pass\nraise Stop", "Stop"),
        ("def (", "SyntaxError: invalid syntax"),
        ("", "AttributeError: module 'broken_mod' has no attribute 'Plugin'"),
    ],
)
def test_a_failed_import_is_named_and_chained(distributions: Any, source: str, words: str) -> None:
    broken(distributions, source)
    with pytest.raises(PluginLoadError) as caught:
        load("backend", "broken", {})
    start = f"backend 'broken' (kopt-broken 0.1.0) failed to import: {words}"
    assert str(caught.value).startswith(start)
    assert "; repair or reinstall kopt-broken, or do not name it" in str(caught.value)
    assert type(caught.value.__cause__).__name__ == words.partition(":")[0]


def test_an_interrupt_at_import_is_not_swallowed(distributions: Any) -> None:
    broken(distributions, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load("backend", "broken", {})


def test_only_the_chosen_plugin_is_imported(distributions: Any) -> None:
    broken(distributions, "raise RuntimeError")
    distributions.add(
        "acme-kopt",
        plugins={"backend.fine": "fine_mod:Fine"},
        modules={"fine_mod": "class Fine: 0"},
    )
    load("backend", "fine", {})
    assert "broken_mod" not in sys.modules


def test_of_two_of_one_name_the_chosen_one_is_loaded(distributions: Any) -> None:
    for dist in ("acme-kopt", "kopt-alpha"):
        module = dist.replace("-", "_") + "_mod"
        distributions.add(
            dist, plugins={"backend.alpha": f"{module}:A"}, modules={module: "class A: 0"}
        )
    for dist in ("acme-kopt", "kopt-alpha"):
        plugin = load("backend", f"{dist}:alpha", {})
        assert type(plugin.instance).__module__ == dist.replace("-", "_") + "_mod"


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (
            "class Plugin:\n    def __init__(self): raise ValueError('no licence')",
            PluginLoadError,
            r"could not be made: ValueError: no licence; check its options",
        ),
        (
            "import kopt\nclass Plugin:\n    class Options(kopt.Options): pass",
            PluginInterfaceError,
            r"Plugin cannot be made as Plugin\(options\): too many positional arguments",
        ),
        (
            "class Plugin:\n    def __init__(self, a, b): pass",
            PluginInterfaceError,
            r"Plugin cannot be made as Plugin\(options\): missing a required argument: 'b'",
        ),
        (
            "class Plugin:\n    Options = {'a': 1}",
            PluginInterfaceError,
            r"Plugin\.Options is no options class; write it as class Options\(kopt\.Options\)",
        ),
        (
            "import kopt\nclass Plugin:\n"
            "    def __init__(self):\n"
            "        raise kopt.errors.PluginUnavailableError('no ncu on this machine')\n"
            "import kopt.errors",
            PluginUnavailableError,
            r"^no ncu on this machine$",
        ),
        (
            "import kopt\nfrom pydantic import model_validator\nclass Plugin:\n"
            "    class Options(kopt.Options):\n"
            "        @model_validator(mode='after')\n"
            "        def check(self): raise OSError('disk')\n"
            "    def __init__(self, options): pass",
            PluginOptionsError,
            r"checking its options raised OSError: disk; this is a fault of the plugin",
        ),
    ],
)
def test_what_cannot_be_made(
    distributions: Any, source: str, error: type[Exception], words: str
) -> None:
    broken(distributions, source)
    with pytest.raises(error, match=words):
        load("backend", "broken", {})


def test_a_typo_is_refused_where_options_let_it_pass(distributions: Any) -> None:
    broken(
        distributions,
        "from pydantic import BaseModel\nclass Plugin:\n"
        "    class Options(BaseModel):\n        depth: int = 1\n"
        "    def __init__(self, options): pass",
    )
    with pytest.raises(PluginOptionsError, match=r"detph: unknown option \(did you mean 'depth'"):
        load("backend", "broken", {"detph": 2})


class DeepSearch:
    class Options(kopt.Options):
        depth: int = 1

    def __init__(self, options: Options) -> None:
        self.options = options


def test_an_instance_gets_a_name_from_its_class() -> None:
    plugin = adopt("search", DeepSearch(DeepSearch.Options()))
    assert plugin.info.name == "deep-search"
    assert plugin.info.label == f"search 'deep-search' (an instance of {__name__}:DeepSearch)"
    assert plugin.ref is None


@pytest.mark.usefixtures("unroll")
def test_an_instance_of_an_installed_class_is_that_plugin() -> None:
    import unroll_mod  # type: ignore[import-not-found]

    instance = unroll_mod.Unroll(unroll_mod.Unroll.Options(factors=(2,)))
    plugin = adopt("strategy", instance)
    assert plugin.info.source == "acme-kopt 1.2.0"
    assert plugin.ref is not None
    assert plugin.ref.reference == "acme-kopt:unroll"
    again = load(*plugin.ref)
    assert again.instance.options == instance.options  # type: ignore[attr-defined]


def test_a_class_in_place_of_an_instance() -> None:
    with pytest.raises(
        PluginInterfaceError, match=r"DeepSearch is a class, not a plugin; pass an "
    ):
        adopt("search", DeepSearch)


def test_no_cache_is_written(
    distributions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    distributions.add(
        "acme-kopt",
        plugins={"backend.fine": "fine_mod:Fine"},
        modules={"fine_mod": "class Fine: 0"},
    )
    load("backend", "fine", {})
    assert not (tmp_path / "cache").exists()
