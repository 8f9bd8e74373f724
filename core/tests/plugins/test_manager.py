"""The manager keeps the user's order and refuses what pluggy would ignore in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pluggy
import pytest

import kopt
from kopt import hookspecs
from kopt.errors import PluginInterfaceError
from kopt.plugins.catalog import PluginInfo
from kopt.plugins.loader import LoadedPlugin
from kopt.plugins.manager import Manager


def plugin(instance: object, name: str = "beta") -> LoadedPlugin:
    info = PluginInfo("backend", name, f"kopt-{name}", "0.1.0", "m:A")
    return LoadedPlugin(instance, info, None)


def bind(*instances: object) -> Manager:
    manager = Manager()
    manager.register([(f"backend.{i}", plugin(one, str(i))) for i, one in enumerate(instances)])
    return manager


def refusal(instance: object) -> str:
    with pytest.raises(PluginInterfaceError) as caught:
        Manager().register([("backend.beta", plugin(instance))])
    message = str(caught.value)
    assert message.startswith("backend 'beta' (kopt-beta 0.1.0): ")
    return message.partition("): ")[2]


def with_method(name: str, method: Callable[..., object]) -> object:
    return type("Beta", (), {name: method})()


class Check:
    @kopt.hookimpl
    def kopt_check(self) -> list[kopt.Check]:
        return []


class First:
    @kopt.hookimpl(tryfirst=True)
    def kopt_check(self) -> list[kopt.Check]:
        return []


class Last:
    @kopt.hookimpl(trylast=True)
    def kopt_check(self) -> list[kopt.Check]:
        return []


def test_the_users_order_is_the_order_of_calls() -> None:
    instances = [Check(), Check(), Check()]
    asked = bind(*instances).implementers("kopt_check")
    assert [loaded.instance for loaded in asked] == instances


def test_plugins_can_ask_for_an_end_of_the_order() -> None:
    last, middle, first = Last(), Check(), First()
    asked = bind(last, middle, first).implementers("kopt_check")
    assert [loaded.instance for loaded in asked] == [first, middle, last]


def test_the_markers_are_those_of_pluggy() -> None:
    def method() -> None: ...

    def theirs() -> None: ...

    kopt.hookimpl(tryfirst=True)(method)
    pluggy.HookimplMarker("kopt")(theirs, tryfirst=True)
    assert vars(method) == vars(theirs)
    pluggy.HookspecMarker("kopt")(theirs, firstresult=True)
    assert vars(theirs)["kopt_spec"] == vars(hookspecs.kopt_build)["kopt_spec"]


def test_two_managers_do_not_see_each_others_plugins() -> None:
    one, two = bind(Check()), bind()
    assert len(one.implementers("kopt_check")) == 1
    assert two.implementers("kopt_check") == []


def test_a_call_reaches_one_plugin_only() -> None:
    calls: list[str] = []

    class Note:
        def __init__(self, name: str) -> None:
            self.name = name

        @kopt.hookimpl
        def kopt_stop(self) -> str:
            calls.append(self.name)
            return self.name

    manager = bind(Note("a"), Note("b"))
    arguments = {"history": None, "budget": None, "spend": None}
    second = manager.implementers("kopt_stop")[1]
    assert manager.call("kopt_stop", second, arguments) == "b"
    assert calls == ["b"]


def test_unknown_argument() -> None:
    @kopt.hookimpl
    def kopt_build(self: object, candidat: object) -> None: ...

    assert refusal(with_method("kopt_build", kopt_build)) == (
        "kopt_build takes an unknown argument 'candidat' (did you mean 'candidate'?); "
        "kopt_build may take: problem, candidate, context"
    )


def test_unknown_hook() -> None:
    @kopt.hookimpl
    def kopt_biuld(self: object) -> None: ...

    assert refusal(with_method("kopt_biuld", kopt_biuld)).startswith(
        "unknown hook 'kopt_biuld' (did you mean 'kopt_build'?); hooks are: kopt_check, "
    )


def test_a_marked_method_that_is_not_named_like_a_hook() -> None:
    @kopt.hookimpl
    def build(self: object) -> None: ...

    assert refusal(with_method("build", build)).startswith("unknown hook 'build'")


def test_unmarked_hook() -> None:
    def kopt_build(self: object) -> None: ...

    assert refusal(with_method("kopt_build", kopt_build)).startswith(
        "kopt_build is not marked with @kopt.hookimpl; mark it, or give it a name"
    )
    assert refusal(with_method("kopt_check", staticmethod(kopt_build))).startswith(
        "kopt_check is not marked"
    )
    assert "(did you mean 'kopt_build'?)" in refusal(with_method("kopt_buidl", kopt_build))


def test_an_unmarked_override_of_a_marked_method() -> None:
    class Child(Check):
        def kopt_check(self) -> list[kopt.Check]:
            return []

    assert refusal(Child()).startswith("kopt_check is not marked")


def test_data_that_begins_with_kopt_is_no_hook() -> None:
    class Named(Check):
        kopt_home = "somewhere"

        @property
        def kopt_version(self) -> str:
            raise AssertionError("binding evaluated a property")

    assert len(bind(Named()).implementers("kopt_check")) == 1


def test_no_hook_at_all() -> None:
    assert refusal(object()).startswith("it implements no hook; mark its methods")


def _default(self: object, path: object = None) -> None: ...
def _own_default(self: object, path: object, encoding: str = "utf-8") -> None: ...
def _everything(self: object, **arguments: object) -> None: ...
def _keyword(self: object, *, path: object) -> None: ...
async def _async(self: object, path: object) -> None: ...


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (_default, "kopt_load_problem gives 'path' a default and may not get it"),
        (_everything, "kopt_load_problem takes *arguments, which would stay empty"),
        (_keyword, "kopt_load_problem takes 'path' by keyword only; remove the asterisk"),
        (_async, "kopt_load_problem is async; hooks are plain methods"),
    ],
)
def test_arguments_that_would_not_be_filled(method: Callable[..., object], words: str) -> None:
    assert refusal(with_method("kopt_load_problem", kopt.hookimpl(method))).startswith(words)


def test_an_argument_of_the_plugins_own_with_a_default_is_fine() -> None:
    manager = bind(with_method("kopt_load_problem", kopt.hookimpl(_own_default)))
    assert len(manager.implementers("kopt_load_problem")) == 1


@pytest.mark.parametrize("option", ["wrapper", "hookwrapper", "optionalhook"])
def test_options_of_pluggy_that_kopt_has_no_use_for(option: str) -> None:
    def kopt_check(self: object) -> Any:
        yield

    kopt.hookimpl(kopt_check)
    vars(kopt_check)["kopt_impl"][option] = True  # as pluggy's own marker sets it
    assert refusal(with_method("kopt_check", kopt_check)).startswith(
        f"kopt_check is marked with {option}; kopt calls each plugin on its own"
    )


def test_plugins_that_compare_by_value() -> None:
    @dataclass
    class Value:
        @kopt.hookimpl
        def kopt_check(self) -> list[kopt.Check]:
            return []

    class Model(kopt.Options):
        @kopt.hookimpl
        def kopt_check(self) -> list[kopt.Check]:
            return []

    assert refusal(Value()).startswith("Value compares by value; write it as a plain class")
    assert refusal(Model()).startswith("Model compares by value")


def test_one_instance_twice() -> None:
    instance = Check()
    with pytest.raises(PluginInterfaceError, match="already registered"):
        bind(instance, instance)
