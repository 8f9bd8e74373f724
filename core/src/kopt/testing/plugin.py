"""What every plugin has to do, whatever its role (needs pytest)."""

from __future__ import annotations

import functools
from typing import ClassVar

import pytest
from pydantic import BaseModel, ValidationError

from kopt.hooks import Hooks
from kopt.model.check import Check
from kopt.plugins.catalog import PluginInfo, installed
from kopt.plugins.loader import adopt


@functools.cache
def _installed(role: str) -> list[PluginInfo]:
    """What is installed, read from the disk once: contracts make many instances."""
    return installed(role)


class PluginContract:
    """The base of every contract: a plugin that kopt can load, and that answers for itself."""

    role: ClassVar[str]

    def plugin(self) -> object:
        """Return a new instance of the plugin, as kopt would make it."""
        raise NotImplementedError("a contract's subclass has to return its plugin here")

    def hooks(self) -> Hooks:
        """Return the typed hooks over a new instance alone."""
        return Hooks([adopt(self.role, self.plugin(), _installed(self.role))])

    def test_its_hooks_match_the_specifications(self) -> None:
        """Registering it raises nothing."""
        assert len(self.hooks().plugins) == 1

    def test_its_check_answers_and_names_a_next_step(self) -> None:
        """``kopt_check`` does not raise, and rows that are not ok carry their fix."""
        hooks = self.hooks()
        rows = hooks.kopt_check()
        assert hooks.failures == []
        assert all(isinstance(row, Check) for row in rows)
        assert [row.name for row in rows if row.state != "ok" and not row.fix] == []

    def test_an_unknown_option_is_refused(self) -> None:
        """A misspelt option is an error, not silence."""
        schema = getattr(type(self.plugin()), "Options", None)
        if schema is None:
            pytest.skip("it has no options")
        assert issubclass(schema, BaseModel)
        with pytest.raises(ValidationError):
            schema.model_validate({"no_such_option": 1})
