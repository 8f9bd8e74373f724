"""The session's end of a judge process: an Evaluator that survives the judge's death."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import kopt.errors
from kopt.env import judge_environment
from kopt.errors import CandidateError, WorkerError
from kopt.evaluator import Compiled, Opening
from kopt.model.candidate import Candidate
from kopt.model.device import Device
from kopt.model.evaluation import Evaluation
from kopt.model.oracle import OracleReport
from kopt.model.problem import Signature
from kopt.model.verification import Status
from kopt.peaks import known_peaks
from kopt.worker.channel import Channel, ChannelClosedError, ChannelTimeoutError
from kopt.worker.probe import JudgeProbe
from kopt.worker.settings import JudgeSettings

_OPEN_SECONDS = 900.0
_LEAVE_SECONDS = 10.0
_ORDERS_PER_EVALUATION = 100
"""Deadlines of single orders are the judge's; the session's only tells a judge that is stuck."""


class JudgeLostError(Exception):
    """The judge process died or is stuck."""


class LocalEvaluator:
    """See kopt.evaluator.Evaluator: one judge process, started again where it dies."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._number = 0
        self._timing = True
        self._target = "native"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._patience = settings.build_seconds + _ORDERS_PER_EVALUATION * settings.run_seconds

    def open(self) -> Opening:
        """Start the judge and have it time the baselines."""
        try:
            return self._open()
        except JudgeLostError as error:
            raise WorkerError(f"the judge process did not open the problem: {error}") from error

    def prepare(self) -> tuple[Device, Signature]:
        """Start the judge without baselines: enough to verify, not to time."""
        self._timing = False
        try:
            return self._prepare()
        except JudgeLostError as error:
            raise WorkerError(f"the judge process did not open the problem: {error}") from error

    def _prepare(self) -> tuple[Device, Signature]:
        self._start()
        number = self._send("prepare", {})
        result = self._result(self._receive(_OPEN_SECONDS), number)
        device = self._known(Device.model_validate(result["device"]))
        return device, Signature.model_validate(result["signature"])

    def _known(self, device: Device) -> Device:
        """Return a device with what was once measured of it."""
        self._target = "native" if device.kind == "cpu" else device.architecture
        return device.model_copy(update={"peaks": known_peaks(device)})

    def _open(self) -> Opening:
        self._start()
        number = self._send("open", {})
        opening = Opening.model_validate(self._result(self._receive(_OPEN_SECONDS), number))
        opening = opening.model_copy(update={"device": self._known(opening.device)})
        self._settings = self._settings.model_copy(update={"fastest": opening.fastest})
        return opening

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kopt.worker.judge_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, env=judge_environment(), start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._channel = Channel(ours)
        try:
            self._channel.send(self._settings.to_json())
        except ChannelClosedError as error:
            raise JudgeLostError(self._last_words()) from error

    def _send(self, op: str, fields: dict[str, Any]) -> int:
        assert self._channel is not None, "open() comes first"
        self._number += 1
        try:
            self._channel.send({"id": self._number, "op": op, **fields})
        except ChannelClosedError as error:
            raise JudgeLostError(self._last_words()) from error
        return self._number

    def _receive(self, seconds: float) -> dict[str, Any]:
        assert self._channel is not None
        try:
            reply, _ = self._channel.receive(seconds)
        except ChannelClosedError as error:
            raise JudgeLostError(self._last_words()) from error
        except ChannelTimeoutError as error:
            raise JudgeLostError(f"no answer for {seconds:g} s") from error
        return reply

    def _result(self, reply: dict[str, Any], number: int | None = None) -> dict[str, Any]:
        if number is not None and reply["id"] != number:
            raise WorkerError(f"the judge answered request {reply['id']}, not {number}")
        if "error" in reply:
            if "status" in reply:
                raise CandidateError(Status(reply["status"]), reply["message"])
            kind = getattr(kopt.errors, reply["error"], WorkerError)
            raise kind(reply["message"])
        result: dict[str, Any] = reply["result"]
        return result

    def evaluate(self, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
        """Yield evaluations as they come; a judge that dies costs whom it died of."""
        left = {candidate.id: candidate for candidate in candidates}
        try:
            for evaluation in self._batch(list(left.values())):
                del left[evaluation.id]
                yield evaluation
        except JudgeLostError:
            self._kill()  # it may be stuck, or not quite dead yet
            for candidate in left.values():  # one by one: whose fault is it?
                yield self._alone("evaluate", candidate)

    def _batch(self, candidates: list[Candidate]) -> Iterator[Evaluation]:
        waiting = {self._send("evaluate", {"candidate": c.to_json()}): c for c in candidates}
        while waiting:
            reply = self._receive(self._patience)
            candidate = waiting.pop(reply["id"], None)
            if candidate is None:
                continue  # the answer to a batch that was given up
            yield self._evaluation(reply, candidate)

    def _evaluation(self, reply: dict[str, Any], candidate: Candidate) -> Evaluation:
        try:
            evaluation = Evaluation.model_validate(self._result(reply))
        except WorkerError as error:
            return _infrastructure(candidate, str(error))
        # What was sent, in case JSON changed a value: the id must be the same.
        return evaluation.model_copy(update={"candidate": candidate})

    def _alone(self, op: str, candidate: Candidate) -> Evaluation:
        reason = ""
        for _ in range(2):
            try:
                if self._process is None or self._process.poll() is not None:
                    self._kill()
                    _ = self._open() if self._timing else self._prepare()
                number = self._send(op, {"candidate": candidate.to_json()})
                while (reply := self._receive(self._patience))["id"] != number:
                    continue
                return self._evaluation(reply, candidate)
            except JudgeLostError as error:
                reason = str(error)
                self._kill()
        return _infrastructure(candidate, f"the judge process died twice: {reason}")

    def confirm(self, candidate: Candidate) -> Evaluation:
        """Evaluate again in a fresh process, with new seeds, against every baseline."""
        return self._alone("confirm", candidate)

    def verify(self, candidate: Candidate) -> Evaluation:
        """Build and verify at a winner's depth, without timing."""
        return self._alone("verify", candidate)

    def test_oracle(self) -> OracleReport:
        """Have the verifiers judge known-wrong results; ``prepare`` comes first."""
        try:
            number = self._send("test_oracle", {})
            result = self._result(self._receive(max(_OPEN_SECONDS, self._patience)), number)
        except JudgeLostError as error:
            raise WorkerError(f"the oracle was not tested: {error}") from error
        return OracleReport.model_validate(result)

    def compiled(self, candidate: Candidate, target: str, listing: str | None = None) -> Compiled:
        """Build for a target without running anything; ``prepare`` comes first.

        ``listing``: of which kind, as ``ptx``. Every failure of the candidate is in the answer.
        """
        fields = {"candidate": candidate.to_json(), "target": target, "listing": listing}
        try:
            number = self._send("compiled", fields)
            return Compiled.model_validate(self._result(self._receive(self._patience), number))
        except JudgeLostError as error:
            raise WorkerError(f"nothing was built for {target}: {error}") from error

    def probe(self, candidate: Candidate) -> JudgeProbe:
        """Return a profiler's access to a candidate; ``open`` or ``prepare`` comes first."""
        return JudgeProbe(candidate, self._probed, self.compiled, self._target)

    def _probed(self, op: str, seconds: float, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            number = self._send(op, fields)
            return self._result(self._receive(self._patience + seconds), number)
        except JudgeLostError as error:
            raise WorkerError(f"the candidate was not profiled: {error}") from error

    def _last_words(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), 3000, max(0, size - 3000)).decode(errors="replace")
        said = tail.strip() or "nothing (the reference, which runs in it, may have ended it)"
        return f"the judge process {self._end()}; it last said: {said}"

    def _end(self) -> str:
        """Say how the process ended."""
        try:
            code = self._process.wait(timeout=2.0) if self._process is not None else None
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code is None:
            return "was not started"
        if code < 0:
            return f"died of {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _kill(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._process is not None and self._process.poll() is None:
            try:  # it ends every process below it first, those that hide from us too
                self._process.wait(timeout=_LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._process, self._channel = None, None

    def close(self) -> None:
        """End the judge and with it every candidate process."""
        self._kill()
        self._log.close()


def _infrastructure(candidate: Candidate, reason: str) -> Evaluation:
    return Evaluation(candidate=candidate, status=Status.INFRASTRUCTURE_ERROR, detail=reason)
