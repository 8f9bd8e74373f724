"""The plugin: requests of any role, answered by the models of one endpoint."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError

import kopt
from kopt.errors import CompletionError
from kopt.model.check import Check
from kopt.model.completion import Completion, CompletionFailure, CompletionRequest, Price
from kopt_openai import options as options_module
from kopt_openai.asking import Inquiry
from kopt_openai.checking import checks
from kopt_openai.connection import Connection, NoClientError
from kopt_openai.endpoint import Endpoint, resolve
from kopt_openai.parameters import Refused
from kopt_openai.pricing import highest
from kopt_openai.redaction import protect


class OpenAI:
    """Asks an OpenAI-compatible endpoint: OpenAI's, another host's, or a server of one's own.

    An instance serves one run at a time: when that has finished, what is still in flight is given
    up, so that the endpoint stops writing what nobody reads.
    """

    Options = options_module.Options

    def __init__(self, options: options_module.Options | None = None) -> None:
        self.options = options or self.Options()
        self._refused = Refused()
        self._connection = Connection(self.options)
        self._answering: dict[str, Callable[[], None]] = {}
        weakref.finalize(self, self._connection.close)

    def _endpoint(self) -> Endpoint:
        endpoint = resolve(self.options)
        protect(endpoint.secrets())
        return endpoint

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say where the endpoint is and whether it can be reached; nothing is asked of it."""
        return list(checks(self.options, self._endpoint()))

    @kopt.hookimpl
    def kopt_price(self, role: str) -> Price | None:
        """Return the most that the role's model, or a fallback of it, costs; None: unknown."""
        return highest(self.options.models_for(role), self.options, self._endpoint().host)

    @kopt.hookimpl
    def kopt_complete(self, request: CompletionRequest) -> Completion:
        """Answer. Raises CompletionError; called from several threads at a time."""
        endpoint = self._endpoint()
        if endpoint.missing:
            names = ", ".join(endpoint.missing)
            detail = f"options name {names}, not set in the environment; set it, then kopt resume"
            raise CompletionError(CompletionFailure(kind="unavailable", detail=detail))
        inquiry = Inquiry(request, self.options, endpoint, self._refused)
        try:
            return self._connection.run(
                endpoint, inquiry.ask, lambda stop: self._answering.update({request.id: stop})
            )
        except CancelledError:
            raise CompletionError(inquiry.cancelled()) from None
        except NoClientError as error:
            failure = CompletionFailure(kind="unavailable", detail=str(error))
            raise CompletionError(failure) from error
        finally:
            self._answering.pop(request.id, None)

    @kopt.hookimpl
    def kopt_give_up(self, request: CompletionRequest) -> None:
        """Close the connection of one request: the endpoint stops writing."""
        if (stop := self._answering.get(request.id)) is not None:
            stop()

    @kopt.hookimpl
    def kopt_run_finished(self) -> None:
        """Give up what is in flight."""
        self.cancel()

    def cancel(self) -> None:
        """Give up all requests in flight: each ends with a CompletionError of kind ``stopped``."""
        self._connection.close()
