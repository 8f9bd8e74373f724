"""What can go wrong when an endpoint is asked: of which kind it is, and whether to try again."""

from __future__ import annotations

import email.utils
import json
import re
import ssl
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from kopt.model.completion import FailureKind
from kopt_openai.redaction import cleaned

if TYPE_CHECKING:
    from kopt_openai.endpoint import Endpoint

_SAID = 300
"""Characters of an endpoint's own words in a message."""
_OVERFLOW = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum context|exceed_context|prompt is too long"
    r"|too many tokens|reduce the length|input is too long|string_above_max_length",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|billing_|insufficient (?:balance|credit|fund)"
    r"|credit balance is too low|payment required",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[_ -]?(?:filter|policy|management)|responsible_ai", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model_not_found|model\b.{0,80}\b(?:not found|not exist|not available|not served|not loaded)"
    r"|(?:no such|unknown|invalid|access to) model|not a valid model",
    re.IGNORECASE | re.DOTALL,
)
_REFUSED = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|extra (?:fields|inputs)"
    r"|not permitted|not allowed|does not accept|not accepted|instead",
    re.IGNORECASE,
)

Again = Literal["never", "once", "often"]


class NotAnAnswerError(Exception):
    """An endpoint said "fine" and sent something that is no answer."""


class EventError(Exception):
    """An answer of the responses API ended with an error in it."""

    def __init__(self, error: object) -> None:
        super().__init__("the answer ended with an error")
        self.body = error


class Trouble(Exception):
    """One try that failed."""

    def __init__(
        self,
        kind: FailureKind,
        detail: str,
        *,
        again: Again = "never",
        wait: float | None = None,
        parameter: str | None = None,
        other_model: bool = False,
    ) -> None:
        """``wait``: the seconds that the endpoint asks for; ``parameter``: what it will not take."""
        self.kind, self.detail = kind, cleaned(detail)
        self.again, self.wait, self.parameter = again, wait, parameter
        self.other_model = other_model
        """Whether another model of the endpoint may do better."""
        super().__init__(self.detail)


def understood(
    error: Exception, endpoint: Endpoint, model: str, *, accepted: bool, optional: frozenset[str]
) -> Trouble:
    """Return what an exception of the client means.

    :param accepted: whether the endpoint had begun to answer.
    :param optional: names of parameters that the request can do without.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        wait = _retry_after(error.response.headers)
        return _refusal(error.status_code, error.body, str(error), endpoint, model, wait, optional)
    if isinstance(error, openai.APIConnectionError) or _of_transport(error):
        return _disconnected(error, endpoint, accepted=accepted)
    if isinstance(error, (openai.APIError, EventError)):
        said = str(error)
        return _refusal(_status(error.body), error.body, said, endpoint, model, None, frozenset())
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
        return Trouble("invalid", f"{endpoint.shown} sent what is no JSON: {error}", again="once")
    if isinstance(error, NotAnAnswerError):
        hint = "is it the right base_url? It mostly ends in /v1"
        return Trouble("invalid", f"{endpoint.shown}: {error}; {hint}", again="once")
    words = f"{type(error).__name__}: {error}"
    return Trouble("invalid", f"{endpoint.shown}: its answer cannot be read: {words}", again="once")


def _refusal(
    status: int | None,
    body: object,
    text: str,
    endpoint: Endpoint,
    model: str,
    wait: float | None,
    optional: frozenset[str],
) -> Trouble:
    """Return what an error that the endpoint put into words means."""
    facts = _facts(body)
    everything = " ".join([*facts.values(), text])
    said = " ".join((facts.get("message") or text).split())[:_SAID]
    where = f"{endpoint.shown} answers {status or 'with an error'}: {said}"
    if status == 402 or (status in {400, 403, 429, None} and _QUOTA.search(everything)):
        return Trouble("quota", f"{where}; top up the account, or name another endpoint")
    if status == 429 or (status is None and "rate_limit" in everything):
        return Trouble("rate-limited", where, again="often", wait=wait, other_model=True)
    if status in {401, 403} and not _NO_MODEL.search(everything):
        return Trouble("unavailable", f"{where}; {_key_advice(endpoint)}")
    if status == 413 or (status != 404 and _OVERFLOW.search(everything)):
        return Trouble("context-overflow", where)
    if status in {400, 403, 422, None} and _FILTERED.search(everything):
        return Trouble("filtered", where)
    if status in {400, 403, 404, 422} and _NO_MODEL.search(everything):
        return _no_model(where, model)
    if status == 404:
        return Trouble("unavailable", f"{where}; is it the right base_url? It mostly ends in /v1")
    if status in {400, 422}:
        return _wrong_request(where, facts, everything, optional)
    if status is None or status >= 500 or status in {408, 409, 425}:
        return Trouble("unavailable", where, again="often", wait=wait, other_model=True)
    return Trouble("invalid", where)


def _no_model(where: str, model: str) -> Trouble:
    hint = "name one that the endpoint serves, as -o llm.openai.model=NAME"
    return Trouble("unavailable", f"no model {model!r}: {where}; {hint}", other_model=True)


def _wrong_request(
    where: str, facts: Mapping[str, str], everything: str, optional: frozenset[str]
) -> Trouble:
    """Return which parameter is not taken, where that is what is wrong."""
    named = facts.get("param", "").partition(".")[0].partition("[")[0]
    code = facts.get("code", "")
    refused = _REFUSED.search(everything) or code.startswith(("unsupported", "unknown"))
    if refused and named in optional:
        return Trouble("invalid", where, parameter=named)
    if refused:
        # Other servers name it in their words; the longest name first: one may hold another.
        for name in sorted(optional, key=len, reverse=True):
            if re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", everything):
                return Trouble("invalid", where, parameter=name)
    return Trouble("invalid", where)


def _disconnected(error: Exception, endpoint: Endpoint, *, accepted: bool) -> Trouble:
    """Return what a connection that was not made, or that broke, means."""
    causes = list(_causes(error))
    words = next((str(cause) for cause in reversed(causes) if str(cause)), type(error).__name__)
    names = {type(cause).__name__ for cause in causes}
    if any(isinstance(cause, ssl.SSLError) for cause in causes) or "CERTIFICATE" in words:
        hint = "name the certificates to trust, as -o llm.openai.ca_bundle=FILE"
        return Trouble("unavailable", f"{endpoint.shown} cannot be trusted: {words}; {hint}")
    if accepted:
        said = f"{endpoint.shown} broke off its answer: {words}"
        return Trouble("unavailable", said, again="often", other_model=True)
    if names & {"ConnectTimeout", "PoolTimeout", "WriteTimeout"}:
        said = f"no connection to {endpoint.shown} in time ({words})"
        return Trouble("unavailable", f"{said}; {_start_advice(endpoint)}", again="once")
    if "ProxyError" in names:
        hint = "check the option proxy, or HTTPS_PROXY and NO_PROXY"
        return Trouble("unavailable", f"no way to {endpoint.shown}: {words}; {hint}", again="once")
    if names & {"ConnectError", "UnsupportedProtocol", "InvalidURL"}:
        said = f"no connection to {endpoint.shown}: {words}"
        return Trouble("unavailable", f"{said}; {_start_advice(endpoint)}", again="once")
    return Trouble("unavailable", f"{endpoint.shown} hung up: {words}", again="often")


def _start_advice(endpoint: Endpoint) -> str:
    start = "start the server" if endpoint.local else "check the network and the proxy"
    return f"{start}, or correct OPENAI_BASE_URL or the option base_url"


def _key_advice(endpoint: Endpoint) -> str:
    if endpoint.authorized:
        return f"its key is refused: put a valid one into {endpoint.key_variable}, then kopt resume"
    return f"it wants a key: put one into {endpoint.key_variable}, then kopt resume"


def _facts(body: object) -> dict[str, str]:
    """Return an error's message, code, type and param, in whichever form a server has them."""
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
        body = body["error"]
    if isinstance(body, Mapping):
        detail = body.get("message") or body.get("detail") or body.get("error")
        found = {"message": detail, **{key: body.get(key) for key in ("code", "type", "param")}}
    else:
        names = ("message", "code", "type", "param")
        found = {key: getattr(body, key, None) for key in names}
    return {key: str(value) for key, value in found.items() if value not in (None, "")}


def _status(body: object) -> int | None:
    """Return the status that an error within an answer stands for, where it has one."""
    code = _facts(body).get("code", "")
    return int(code) if re.fullmatch(r"[45]\d\d", code) else None


def _retry_after(headers: Any) -> float | None:
    """Return the seconds that a server asks to wait: a number of them, or a date."""
    given = str(headers.get("retry-after-ms") or "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", given):
        return float(given) / 1e3
    given = str(headers.get("retry-after") or "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", given):
        return float(given)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(given).timestamp() - time.time())
    except ValueError:
        return None


def _of_transport(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0].rstrip("2") in {"httpx", "httpcore"}


def _causes(error: BaseException | None) -> Any:
    """Yield an exception and what it came of."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
