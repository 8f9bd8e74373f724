"""Where the model is and what opens it: the options' ``${NAME}`` filled in, never to be shown."""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from kopt.env import llm_endpoint, named_variable
from kopt_openai.options import REFERENCE, Options

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What it takes to talk to an endpoint. Its repr holds no secret."""

    url: str = field(repr=False)
    shown: str
    """The URL without credentials."""
    host: str
    port: int
    key: str = field(repr=False)
    """Empty: none."""
    key_variable: str
    headers: dict[str, str] = field(repr=False)
    proxy: str | None = field(repr=False)
    missing: tuple[str, ...] = ()
    """Variables that options name and that are not set."""

    @property
    def local(self) -> bool:
        """Whether it is on this machine or in a private network."""
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return self.host.endswith((".local", ".localhost")) or "." not in self.host
        return address.is_private or address.is_loopback

    @property
    def encrypted(self) -> bool:
        """Whether others on the way cannot read what is sent."""
        return self.url.startswith("https://")

    @property
    def authorized(self) -> bool:
        """Whether anything is sent that may open it."""
        named = any(
            name.lower() in {"authorization", "api-key", "x-api-key"} for name in self.headers
        )
        return bool(self.key) or named or bool(urlsplit(self.url).password)

    def secrets(self) -> set[str]:
        """Return every text that must not be written anywhere."""
        found = {self.key, *self.headers.values()}
        for value in self.headers.values():
            found.update(value.split(" "))
        for url in (self.url, self.proxy or ""):
            parts = urlsplit(url)
            if parts.password:
                pair = f"{unquote(parts.username or '')}:{unquote(parts.password)}"
                found |= {parts.password, unquote(parts.password)}
                found.add(base64.b64encode(pair.encode()).decode())
        return found - {"", "Bearer", "Basic"}


def resolve(options: Options) -> Endpoint:
    """Return the endpoint that options and environment mean; nothing is asked of it."""
    missing: list[str] = []
    given, _ = llm_endpoint()
    url = _filled(options.base_url, missing) if options.base_url else given or OPENAI_URL
    parts = urlsplit(url if "://" in url else f"http://{url}")
    host = (parts.hostname or "").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    place = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{place}{f':{parts.port}' if parts.port else ''}{parts.path}"
    chosen = options.api_key.get_secret_value() if options.api_key else None
    return Endpoint(
        url=parts.geturl(), shown=shown.rstrip("/"), host=host, port=port,
        key=chosen or named_variable(options.key_variable) or "",
        key_variable=options.key_variable,
        headers={
            _spelt(name): _filled(value.get_secret_value(), missing)
            for name, value in options.headers.items()
        },
        proxy=_filled(options.proxy, missing) if options.proxy else None,
        missing=tuple(dict.fromkeys(missing)),
    )  # fmt: skip


def _spelt(name: str) -> str:
    """Return a header's name; the one that replaces the client's own as the client spells it."""
    return "Authorization" if name.lower() == "authorization" else name


def _filled(text: str, missing: list[str]) -> str:
    """Return the text with each ``${NAME}`` replaced; names that are not set are added."""
    for name in REFERENCE.findall(text):
        value = named_variable(name)
        if value is None:
            missing.append(name)
        text = text.replace(f"${{{name}}}", value or "")
    return text
