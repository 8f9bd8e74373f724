"""What ``kopt doctor`` says of an endpoint: where it is, what opens it, whether it is there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kopt.model.check import Check
from kopt_openai.endpoint import OPENAI_URL, Endpoint

if TYPE_CHECKING:
    from kopt_openai.options import Options

_SECONDS = 2.0


def checks(options: Options, endpoint: Endpoint) -> Iterator[Check]:
    """Yield the rows. A run is only refused where it could not have an answer."""
    hosted = endpoint.url.startswith(OPENAI_URL)
    if endpoint.missing:
        names = ", ".join(endpoint.missing)
        yield Check(name="variables", state="fail", detail=f"{names}: named by options, not set",
                    fix=f"set {names} in the environment")  # fmt: skip
    if options.ca_bundle is not None and not options.ca_bundle.is_file():
        yield Check(name="CA bundle", state="fail", detail=f"no file {options.ca_bundle}",
                    fix="name a PEM file, as -o llm.openai.ca_bundle=FILE")  # fmt: skip
    if hosted and not endpoint.authorized:
        yield _no_key(options, endpoint)
        return
    if hosted and not (options.model and all(options.models.values())):
        some = bool(options.model or options.models)
        yield Check(name="model", state="warn" if some else "fail", detail=f"none is named, and {endpoint.shown} has many",
                    fix="name one, as -o llm.openai.model=NAME")  # fmt: skip
    yield _reachable(endpoint)


def _no_key(options: Options, endpoint: Endpoint) -> Check:
    """Return a row; a failure only where somebody means to use the endpoint."""
    meant = bool(options.model or options.models or options.base_url)
    return Check(
        name="endpoint", state="fail" if meant else "warn",
        detail=f"{endpoint.shown}, no key: {endpoint.key_variable} is not set",
        fix=f"set {endpoint.key_variable}, or OPENAI_BASE_URL for a server that needs no key",
    )  # fmt: skip


def _reachable(endpoint: Endpoint) -> Check:
    key = "a key is set" if endpoint.authorized else "no key is set, which some servers need not"
    detail = f"{endpoint.shown}, {key}"
    fault = _connected(*_first_hop(endpoint))
    if fault:
        fix = "start the server, or correct OPENAI_BASE_URL or the option base_url"
        return Check(name="endpoint", state="warn", detail=f"{detail}; {fault}", fix=fix)
    if endpoint.authorized and not endpoint.encrypted and not endpoint.local:
        fix = "use https, or a tunnel: others on the way can read the key"
        return Check(name="endpoint", state="warn", detail=f"{detail}; not encrypted", fix=fix)
    return Check(name="endpoint", state="ok", detail=detail)


def _first_hop(endpoint: Endpoint) -> tuple[str, int]:
    if endpoint.proxy:
        parts = urlsplit(endpoint.proxy)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    return endpoint.host, endpoint.port


def _connected(host: str, port: int) -> str:
    """Return why no connection can be made; empty: it can. Nothing is sent."""
    found = ["no answer within 2 s"]

    def connect() -> None:
        try:
            with socket.create_connection((host, port), timeout=_SECONDS):
                found[0] = ""
        except OSError as error:
            found[0] = f"no connection: {error.strerror or error}"

    # Looking up a name takes as long as it likes, so a thread does it.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    return found[0]
