"""The judge process: answers the session's requests, several at a time (``python -m``)."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, NoReturn

from kopt.errors import CandidateError, KoptError, lack_of_memory
from kopt.model.candidate import Candidate
from kopt.worker import family
from kopt.worker.baselines import BaselineLostError
from kopt.worker.channel import Channel, ChannelClosedError
from kopt.worker.judge import Judge
from kopt.worker.limits import adopt_orphans, allow_many_files, die_with_parent
from kopt.worker.settings import JudgeSettings


def _told(error: BaseException) -> str:
    """Return what the session is told of an error that nobody expected."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return f"the judge found no memory: {lack_of_memory(str(error))}"
    return "".join(traceback.format_exception(error))[-4000:]


class JudgeServer:
    """Requests in, records out."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._judge: Judge | None = None
        self._leaving = threading.Lock()

    def serve(self) -> None:
        """Answer until the session hangs up, which raises ChannelClosedError."""
        settings, _ = self._channel.receive()
        chosen = JudgeSettings.model_validate(settings)
        # Threads live as long as the judge: a child process dies with the thread that started it.
        threads = ThreadPoolExecutor(max_workers=chosen.build_workers + 1)
        while True:
            request, _ = self._channel.receive()
            threads.submit(self._answer, chosen, request)

    def leave(self, code: int) -> NoReturn:
        """End this process at once, and every process below it first."""
        if self._leaving.acquire(blocking=False):
            self._end(code)
        while True:  # another thread is at it
            time.sleep(1.0)

    def terminated(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: the same, unless this very thread was interrupted in it."""
        if self._leaving.acquire(blocking=False):
            self._end(0)

    def _end(self, code: int) -> NoReturn:
        self._channel.close()  # the deaths that follow are nobody's verdict
        family.close()
        os._exit(code)

    def _answer(self, settings: JudgeSettings, request: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"id": request["id"]}
        try:
            reply["result"] = self._result(settings, request)
        except BaselineLostError as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
            self.leave(1)  # the session starts a judge with working baselines
        except CandidateError as error:
            reply["error"], reply["message"] = type(error).__name__, error.detail
            reply["status"] = str(error.status)
        except KoptError as error:
            reply["error"], reply["message"] = type(error).__name__, str(error)
        except BaseException as error:  # noqa: BLE001 - told to the session, which decides
            reply["error"] = "WorkerError"
            reply["message"] = _told(error)
        try:
            self._channel.send(reply)
        except ChannelClosedError:
            return  # nobody listens any more

    def _result(self, settings: JudgeSettings, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "open":
            self._judge = Judge(settings)
            return self._judge.open().to_json()
        if request["op"] == "prepare":
            self._judge = Judge(settings, timing=False)
            reference = self._judge.reference
            return {
                "device": reference.device.to_json(), "signature": reference.signature.to_json()
            }  # fmt: skip
        if self._judge is None:
            raise KoptError("the judge was not opened")
        if request["op"] == "test_oracle":
            return self._judge.test_oracle().to_json()
        candidate = Candidate.model_validate(request["candidate"])
        if request["op"] == "compiled":
            target, listing = request["target"], request["listing"]
            return self._judge.compiled(candidate, target, listing).to_json()
        if request["op"] == "under":
            return self._judge.probing.under(
                candidate, request["command"], request["environment"], request["calls"],
                request["seconds"],
            ).to_json()  # fmt: skip
        if request["op"] == "timeline":
            timeline = self._judge.probing.timeline(candidate, request["calls"])
            return {"timeline": None if timeline is None else timeline.to_json()}
        methods = {
            "evaluate": self._judge.evaluate,
            "confirm": self._judge.confirm,
            "verify": self._judge.verify,
        }
        return methods[request["op"]](candidate).to_json()


def main(descriptor: int) -> None:
    """Serve on an inherited socket; when the session ends, end the candidates and then this."""
    server = JudgeServer(Channel(socket.socket(fileno=descriptor)))
    signal.signal(signal.SIGTERM, server.terminated)
    die_with_parent(signal.SIGTERM)
    adopt_orphans()
    allow_many_files()
    try:
        server.serve()
    except ChannelClosedError:
        server.leave(0)  # nobody waits for what the threads are at


if __name__ == "__main__":
    main(int(sys.argv[1]))
