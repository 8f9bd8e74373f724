"""The profiler keeps the contract of profilers, without any tool and with a real listing."""

from __future__ import annotations

import pytest

from kopt.testing import ProfilerContract
from kopt.testing.strategy import a_parent
from kopt_static import Static


class TestStatic(ProfilerContract):
    def plugin(self) -> Static:
        return Static()


class TestStaticWithAssembly(ProfilerContract):
    @pytest.fixture(autouse=True)
    def _built(self, build):
        source = a_parent().candidate.source
        self._probe = build(source, "cpp", (4, 8), architecture="native").probe

    def plugin(self) -> Static:
        return Static()

    def probe(self, device):
        return self._probe
