"""The judge process: answers the session's requests, several at a time (``python -m``)."""

from __future__ import annotations

import socket
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kopt.errors import KoptError
from kopt.model.candidate import Candidate
from kopt.worker.channel import Channel, ChannelClosedError
from kopt.worker.judge import Judge
from kopt.worker.limits import adopt_orphans, die_with_parent
from kopt.worker.settings import JudgeSettings


class JudgeServer:
    """Requests in, records out."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._judge: Judge | None = None

    def serve(self) -> None:
        """Answer until the session hangs up."""
        settings, _ = self._channel.receive()
        chosen = JudgeSettings.model_validate(settings)
        # Threads live as long as the judge: a child process dies with the thread that started it.
        with ThreadPoolExecutor(max_workers=chosen.build_workers + 1) as threads:
            while True:
                try:
                    request, _ = self._channel.receive()
                except ChannelClosedError:
                    break
                threads.submit(self._answer, chosen, request)
            if self._judge is not None:
                self._judge.close()

    def _answer(self, settings: JudgeSettings, request: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"id": request["id"]}
        try:
            reply["result"] = self._result(settings, request)
        except KoptError as error:
            reply["error"], reply["message"] = type(error).__name__, str(error)
        except BaseException as error:  # noqa: BLE001 - told to the session, which decides
            reply["error"] = "WorkerError"
            reply["message"] = "".join(traceback.format_exception(error))[-4000:]
        try:
            self._channel.send(reply)
        except ChannelClosedError:
            return  # nobody listens any more

    def _result(self, settings: JudgeSettings, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "open":
            self._judge = Judge(settings)
            return self._judge.open().to_json()
        if self._judge is None:
            raise KoptError("the judge was not opened")
        candidate = Candidate.model_validate(request["candidate"])
        if request["op"] == "ahead":
            return self._judge.ahead(candidate)
        methods = {
            "evaluate": self._judge.evaluate,
            "confirm": self._judge.confirm,
            "verify": self._judge.verify,
        }
        return methods[request["op"]](candidate).to_json()


def main(descriptor: int) -> None:
    """Serve on an inherited socket; die with the session."""
    die_with_parent()
    adopt_orphans()
    JudgeServer(Channel(socket.socket(fileno=descriptor))).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
