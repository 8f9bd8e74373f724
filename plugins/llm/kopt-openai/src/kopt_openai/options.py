"""The plugin's options. Secrets are no options: they are named, and read from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr, field_validator

import kopt

REFERENCE = re.compile(r"\$\{(\w+)\}")
"""A variable of the environment in an option's text."""
_SECRET_NAME = re.compile(r"auth|key|token|secret|password|credential|cookie", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\b(?:sk-|bearer\s|basic\s)", re.IGNORECASE)


class ModelPrice(BaseModel):
    """What a model costs, in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    """Of input that was cached; None: as input."""


class Options(kopt.Options):
    """Options of the OpenAI-compatible model."""

    model: str = ""
    """Empty: the one that the endpoint serves, where it serves one alone."""
    models: dict[str, str] = Field(default_factory=dict)
    """Other models for some roles, as ``{analysis = "small", repair = "small"}``."""
    fallbacks: tuple[str, ...] = ()
    """Models to ask, in this order, where the one before is not to be had."""
    api: Literal["chat", "responses"] = "chat"
    base_url: str | None = None
    """None: ``OPENAI_BASE_URL``, else OpenAI's own. May hold ``${NAME}``."""
    key_variable: str = "OPENAI_API_KEY"
    """The variable that holds the key."""
    api_key: SecretStr | None = None
    """For Python programs alone: a SecretStr in place of the variable."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Sent with each request. A value may hold ``${NAME}``; one that is secret has to."""
    proxy: str | None = None
    """None: what ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` say. May hold ``${NAME}``."""
    ca_bundle: Path | None = None
    """Certificates (PEM) to trust in place of the usual ones."""
    reasoning_effort: str | None = None
    temperature: float | None = Field(default=None, ge=0)
    """Of requests that ask for none of their own."""
    seed: int | None = None
    """The first sample's; the others count up from it."""
    body: dict[str, JsonValue] = Field(default_factory=dict)
    """More fields of each request, as an endpoint of one's own may want."""
    retries: int = Field(default=4, ge=0, le=20)
    """More tries of a request that may succeed the next time."""
    backoff_seconds: float = Field(default=0.5, gt=0)
    """Before the first retry; doubled from one to the next."""
    longest_wait_seconds: float = Field(default=60.0, ge=0)
    """An endpoint that asks to wait longer than this is given up."""
    connect_seconds: float = Field(default=10.0, gt=0)
    first_token_seconds: float = Field(default=300.0, gt=0)
    chunk_seconds: float = Field(default=60.0, gt=0)
    """Between two pieces of an answer."""
    total_seconds: float = Field(default=1200.0, gt=0)
    """Of one request, all its tries included."""
    prices: dict[str, ModelPrice] = Field(default_factory=dict)
    """By model; wins over the table."""
    free: bool = False
    """Whether the endpoint's models cost nothing, as on a machine of one's own."""

    @field_validator("headers", mode="before")
    @classmethod
    def _no_secret_headers(cls, given: object) -> object:
        """Refuse values that would lie readable in a run's folder."""
        for name, value in given.items() if isinstance(given, Mapping) else ():
            if not isinstance(value, str) or REFERENCE.search(value):
                continue
            if _SECRET_NAME.search(str(name)) or _SECRET_VALUE.search(value):
                raise ValueError(
                    f"the value of header {name!r} looks secret, and options are kept in the run's "
                    "folder: put it into a variable of the environment and write ${NAME}"
                )
        return given

    @field_validator("api_key", mode="before")
    @classmethod
    def _no_secret_text(cls, given: object) -> object:
        if given is not None and not isinstance(given, SecretStr):
            raise ValueError(
                "a key is no option, since options are kept in the run's folder: set the variable "
                "OPENAI_API_KEY, or another one that key_variable names"
            )
        return given

    @field_validator("base_url", "proxy")
    @classmethod
    def _no_secret_url(cls, given: str | None) -> str | None:
        """Refuse a password in the text, and what is no URL."""
        if given is None:
            return None
        parts = urlsplit(REFERENCE.sub("x", given))
        if not (parts.hostname or REFERENCE.match(given)):
            raise ValueError("this is no URL; write it as http://localhost:8000/v1")
        if parts.query or parts.fragment:
            raise ValueError("a URL with ? or # cannot be used here; put the rest into headers")
        password = urlsplit(given).password if "://" in given else None
        if password and not REFERENCE.search(password):
            raise ValueError(
                "this URL holds a password, and options are kept in the run's folder: put it into "
                "a variable of the environment and write ${NAME}"
            )
        return given

    def models_for(self, role: str) -> tuple[str, ...]:
        """Return the models to ask for a role, the first one first; an empty name is the served one."""
        return tuple(dict.fromkeys((self.models.get(role, self.model), *self.fallbacks)))
