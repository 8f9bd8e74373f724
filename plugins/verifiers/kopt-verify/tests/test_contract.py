"""The staged verifier keeps the contract of verifiers."""

from __future__ import annotations

from kopt.testing import VerifierContract
from kopt_verify import Verify


class TestVerify(VerifierContract):
    def plugin(self) -> Verify:
        return Verify(Verify.Options())
