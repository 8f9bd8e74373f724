"""One event loop in a thread, one client in it: all threads that ask share its connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from kopt_openai.redaction import cleaned, protect

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from kopt_openai.endpoint import Endpoint
    from kopt_openai.options import Options

T = TypeVar("T")

_END_SECONDS = 2.0
_WRITE_SECONDS = 60.0
_NO_KEY = "none"
"""What the client, which insists on one, is given where there is no key; never sent."""


class NoClientError(Exception):
    """The client could not be made, as from a file that holds no certificates."""


class Connection:
    """The way to an endpoint; opened by the first request, and again after ``close``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._line: _Line | None = None

    def run(
        self,
        endpoint: Endpoint,
        work: Callable[[AsyncOpenAI], Awaitable[T]],
        begun: Callable[[Callable[[], None]], None] = lambda stop: None,
    ) -> T:
        """Return what a coroutine makes of the client; waits for it, in the calling thread.

        ``begun`` is handed what ends the coroutine from another thread. Raises NoClientError, and
        concurrent.futures.CancelledError where it was ended, or the connection closed meanwhile.
        """
        with self._lock:
            if self._line is None:
                self._line = _Line(self._options, endpoint)
            future, stop = self._line.begin(work)
        begun(stop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt must end the request too
            raise

    def close(self) -> None:
        """Give up what is in flight, so that the endpoint stops writing, and end the thread."""
        with self._lock:
            line, self._line = self._line, None
        if line is not None:
            line.close()


class _Line:
    """A loop, its thread and its client."""

    def __init__(self, options: Options, endpoint: Endpoint) -> None:
        self._options, self._endpoint = options, endpoint
        self._client: AsyncOpenAI | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_serve, args=(self._loop,), name="kopt-openai", daemon=True
        )
        self._thread.start()

    def begin(
        self, work: Callable[[AsyncOpenAI], Awaitable[T]]
    ) -> tuple[Future[T], Callable[[], None]]:
        tasks: list[asyncio.Task[Any]] = []

        async def noted() -> T:
            task = asyncio.current_task()
            tasks.extend([task] if task else [])
            return await self._work(work)

        def end() -> None:
            # Not the future: that would end the wait before the work has counted what it cost.
            tasks[0].cancel() if tasks else future.cancel()

        def stop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and all work with it
                self._loop.call_soon_threadsafe(end)

        future = asyncio.run_coroutine_threadsafe(noted(), self._loop)
        return future, stop

    def close(self) -> None:
        # A thread that does not end in time is a daemon: it ends with the process.
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(_END_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)

    async def _work(self, work: Callable[[AsyncOpenAI], Awaitable[T]]) -> T:
        if self._client is None:
            self._client = client(self._options, self._endpoint)
        return await work(self._client)

    async def _shut(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _without_key(request: Any) -> None:
    request.headers.pop("authorization", None)


def client(options: Options, endpoint: Endpoint) -> AsyncOpenAI:
    """Return a client that tries once: retries, times and accounts are this package's business.

    Raises NoClientError.
    """
    import openai

    protect(endpoint.secrets())
    timeout = openai.Timeout(
        connect=options.connect_seconds, read=None, write=_WRITE_SECONDS, pool=None
    )
    more: dict[str, Any] = {"proxy": endpoint.proxy} if endpoint.proxy else {}
    if not endpoint.key and "Authorization" not in endpoint.headers:
        more["event_hooks"] = {"request": [_without_key]}
    try:
        if options.ca_bundle is not None:
            more["verify"] = ssl.create_default_context(cafile=str(options.ca_bundle))
        return openai.AsyncOpenAI(
            api_key=endpoint.key or _NO_KEY, base_url=endpoint.url, default_headers=endpoint.headers, timeout=timeout,
            max_retries=0, http_client=openai.DefaultAsyncHttpxClient(timeout=timeout, **more),
        )  # fmt: skip
    except Exception as error:
        words = cleaned(f"{type(error).__name__}: {error}")
        raise NoClientError(
            f"there is no way to {endpoint.shown}: {words}; check the options proxy, ca_bundle and "
            "base_url"
        ) from error
