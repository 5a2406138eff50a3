"""Requests to servers: limits, retries, and their errors as gridref's own.

`unavailable` makes one of gridref's errors from an exception. `is_transient` says whether the same
request may succeed later. `RetryPolicy` and `Pauses` say how often and after how long to retry.
`RequestLimit` and `within_limit` say how many requests are in flight, and how long an answer may
take.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from gridref.errors import GridrefError, Message, Option, Place, SourceUnavailableError
from gridref.forks import tell_in_children
from gridref.io.context import waiting
from gridref.limits import limits
from gridref.secrets import without_secrets

_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_THROTTLED = frozenset({429, 503})
_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT_ERRNO = frozenset(
    {
        errno.EAGAIN,
        errno.EINTR,
        errno.EIO,
        errno.EPIPE,
        errno.ESTALE,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ETIMEDOUT,
    }
)
_NETWORK_PACKAGES = frozenset(
    {
        "aiobotocore",
        "aiohttp",
        "azure",
        "botocore",
        "http",
        "httpx",
        "obstore",
        "requests",
        "urllib3",
    }
)


@dataclass(frozen=True)
class RetryPolicy:
    """How often, and after how long, to retry after a transient failure.

    Attributes
    ----------
    n_attempts
        Attempts in all, the first included.
    first_delay, max_delay
        Seconds before the second attempt, doubled for each further one up to the maximum. A random
        quarter is added, which keeps many readers from returning at the same moment.
    max_wait
        Most seconds to wait in all because the server requires it (``Retry-After``, RFC
        9110, section 10.2.3). Those attempts do not count.
    """

    n_attempts: int = 4
    first_delay: float = 0.1
    max_delay: float = 5.0
    max_wait: float = 120.0

    def delays(self) -> Iterator[float]:
        """Seconds to wait before each further attempt."""
        for attempt in range(self.n_attempts - 1):
            delay = min(self.max_delay, self.first_delay * 2**attempt)
            yield delay * (1 + random.random() / 4)

    def pauses(self) -> Pauses:
        """How long to wait after each failure of one piece of work."""
        return Pauses(self)

    def call[Result](self, action: Callable[[], Result], url: str) -> Result:
        """The result of `action`, retried while it fails transiently.

        Raises
        ------
        SourceUnavailableError
            If it fails for good.
        """
        pauses = self.pauses()
        while True:
            try:
                return action()
            except GridrefError:
                raise
            except Exception as error:  # noqa: BLE001 - becomes one of ours
                pause = pauses.after([error])
                if pause is None:
                    raise unavailable(url, error) from shown(error, url)
            with waiting():
                time.sleep(pause)


class Pauses:
    """How long to wait after each failure of one piece of work.

    Parameters
    ----------
    policy
        How often and how long at most.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._delays = policy.delays()
        self._left = policy.max_wait

    def after(self, errors: Collection[BaseException]) -> float | None:
        """Seconds to wait before the next attempt; None for no further attempt."""
        if not all(map(is_transient, errors)):
            return None
        asked = max(map(_asked_pause, errors)) * (1 + random.random() / 4)
        if not asked:
            return next(self._delays, None)
        self._left -= asked
        return asked if self._left >= 0 else None


def _asked_pause(error: BaseException) -> float:
    """Seconds that a server asks clients to wait; 0 if it does not."""
    error = _true_cause(error)
    if status_of(error) not in _THROTTLED:
        return 0
    text = str(_headers_of(error).get("retry-after", "")).strip()
    if text.isdecimal():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0
    return max(0.0, moment.timestamp() - time.time())


def _headers_of(error: BaseException) -> Mapping[str, Any]:
    """Header fields that came with an error of aiohttp, requests or botocore, in small letters."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders")
    else:
        headers = getattr(error, "headers", None) or getattr(response, "headers", None)
    return {str(name).lower(): value for name, value in (headers or {}).items()}


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    error = _true_cause(error)
    if isinstance(error, _PERMANENT):
        return False
    status = status_of(error)
    if status is not None:
        return status in _TRANSIENT_STATUS
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNO:
        return True
    return _is_of_the_network(error)


def is_absent(error: BaseException) -> bool:
    """Whether an error means that there is no such file; looks at the cause of gridref's own."""
    if isinstance(error, SourceUnavailableError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, _HiddenError):
        return error.absent
    error = _true_cause(error)
    return isinstance(error, FileNotFoundError | NotADirectoryError) or status_of(error) in (
        404,
        410,
    )


def opens_no_more(error: BaseException | None) -> bool:
    """Whether too many files are open; of our errors, the cause is examined."""
    if isinstance(error, SourceUnavailableError):
        error = error.__cause__
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


_MOST_TEXT = 500
"""Most characters of what another library says."""


def unavailable(
    url: str, error: BaseException, start: int | None = None, stop: int | None = None
) -> GridrefError:
    """The error of gridref for a file that cannot be read."""
    error = _true_cause(error)
    if isinstance(error, GridrefError):
        return error.located(Place(source=url, start=start, stop=stop))
    status = status_of(error)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        reason = (
            "the file does not exist: check the address. If a catalog lists it, restore the file,"
            " or run gridref relocate (if it moved) or gridref refresh --vanished skip (to leave it"
            " out)"
        )
    elif isinstance(error, PermissionError) or status in (401, 403):
        reason = (
            "no permission to read the file: check its mode or the credentials in storage_options"
        )
    elif isinstance(error, IsADirectoryError):
        reason = "the address is a directory, not a file"
    elif opens_no_more(error):
        reason = "too many files are open in this process or system: raise the limit (ulimit -n)"
    elif status in _THROTTLED:
        reason = Message(
            f"the server answered {status} (too many requests) each time: read fewer files at a "
            "time (",
            Option("max_in_flight", 8),
            "), or try again later",
        )
    elif status in _TRANSIENT_STATUS:
        reason = f"the server failed each time (status {status}): try again later"
    elif type(error).__name__ in ("ClientConnectorError", "ClientConnectorDNSError"):  # aiohttp's
        host, port = getattr(error, "host", "?"), getattr(error, "port", "?")
        reason = f"no server answers at {host}, port {port}: check the address and the network"
    elif type(error).__name__ == "NoCredentialsError":  # botocore's
        reason = (
            "no credentials were found: give them in storage_options; public buckets take anon=true"
        )
    else:
        text = without_secrets(str(error) or repr(error), url)
        text = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
        reason = f"the file cannot be read: {type(error).__name__}: {text}"
    return SourceUnavailableError(reason, Place(source=url, start=start, stop=stop))


class _HiddenError(OSError):
    """The text of an error that had credentials in it, without them."""

    def __init__(self, error: BaseException, url: str) -> None:
        super().__init__(without_secrets(f"{type(error).__name__}: {error}", url))
        self.status = status_of(error)
        self.absent = is_absent(error)


def shown(error: BaseException, url: str) -> BaseException:
    """An error at an address as the cause of one of gridref's, without credentials of either."""
    told: BaseException | None = error
    while told is not None:
        if without_secrets(str(told), url) != str(told):
            return _HiddenError(error, url)
        told = told.__cause__ or told.__context__
    return error


def _true_cause(error: BaseException) -> BaseException:
    """Why a file was "not found": fsspec says so too when a server cannot be reached."""
    while isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        cause = error.__cause__
        known = isinstance(cause, FileNotFoundError | GridrefError)
        if not known and not _is_of_the_network(cause):
            break
        error = cause
    return error


def _is_of_the_network(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    packages = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    return bool(packages & _NETWORK_PACKAGES)


def status_of(error: BaseException) -> int | None:
    """HTTP status that an error of aiohttp, requests or botocore carries."""
    for name in ("status", "status_code"):
        status = getattr(error, name, None)
        if isinstance(status, int):
            return status
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(response, "status_code", None)
    return status if isinstance(status, int) else None


# Limits of requests: how many are in flight in this process, and how long an answer may take

MAX_REQUESTS = 64
"""Most requests in flight at a time."""


def within_limit(filesystem: Any, method: str, n_bytes: int = 0) -> Callable[..., Any]:
    """A method of an fsspec filesystem that fails after a time limit.

    Only methods that wait on fsspec's event loop have it; others have their own limits, or none.
    """
    has_no_loop = not getattr(filesystem, "async_impl", False) or filesystem.asynchronous

    def ask(*arguments: Any, **options: Any) -> Any:
        from fsspec.asyn import sync

        with waiting():
            if has_no_loop:
                return getattr(filesystem, method)(*arguments, **options)
            coroutine = getattr(filesystem, f"_{method}")
            limit = limits().seconds_for(n_bytes)
            return sync(filesystem.loop, coroutine, *arguments, timeout=limit, **options)

    return ask


class RequestLimit:
    """Limits the number of requests that are in flight at a time. Thread-safe."""

    def __init__(self, most: int = MAX_REQUESTS) -> None:
        self.most = most
        tell_in_children(self)
        self.after_fork()

    def after_fork(self) -> None:
        """Forget requests of the parent process."""
        self._n_going = 0
        self._changed = threading.Condition()

    @contextmanager
    def going(self, n_requests: int) -> Iterator[None]:
        """Wait until `n_requests` more may be in flight, and count them in the ``with`` block."""
        with waiting():
            with self._changed:
                self._changed.wait_for(lambda: self.begin(n_requests))
            try:
                yield
            finally:
                self.end(n_requests)

    def begin(self, n_requests: int) -> bool:
        """Count `n_requests` more, if so many may be in flight; the caller must end them."""
        with self._changed:
            may_begin = self._n_going + n_requests <= self.most
            self._n_going += n_requests * may_begin
        return may_begin

    def end(self, n_requests: int) -> None:
        """Stop counting some requests."""
        with self._changed:
            self._n_going -= n_requests
            self._changed.notify_all()


requests_in_flight = RequestLimit()
"""The limit of this process."""
