"""Credentials that expire: a function given by the user returns new ones.

`Credentials` holds what a ``credential_provider`` returned last, and asks it again shortly before
that expires, or when a server refuses it. The filesystems of S3 and HTTP hold `Credentials`, not
keys: each request is sent with those that hold now.

The names of credentials are those of s3fs, obstore's providers ("Authentication" in obstore's
documentation), boto3's STS client and NASA's S3 endpoints.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gridref.errors import GridrefError, InvalidRequestError, Place, SourceUnavailableError
from gridref.forks import new_lock, new_rlock
from gridref.secrets import without_secrets

PROVIDER = "credential_provider"
"""The option of a filesystem that holds a provider."""

_NAMES = {
    "accesskeyid": "key",
    "awsaccesskeyid": "key",
    "secretaccesskey": "secret",
    "awssecretaccesskey": "secret",
    "sessiontoken": "token",
    "awssessiontoken": "token",
    "expiresat": "expires_at",
    "expiration": "expires_at",
}
_EXPIRY = "expires_at"
_MOST_AHEAD_SECONDS = 60.0
_SECONDS_WITHOUT_USE = 30.0
"""How long a plain refusal asks for no new credentials, once new ones were refused, too."""
_LEAST_HIDDEN = 4
MOST_REFUSALS = 3
"""How often one request is sent with new credentials."""

type Provider = Callable[[], Any]


class Answer(NamedTuple):
    """What a provider returned.

    Attributes
    ----------
    options
        Options of a filesystem, by the names of s3fs; without the time of expiry.
    renew_at
        When to ask again, in seconds since 1970; infinite if nothing says when they expire.
    """

    options: Mapping[str, Any]
    renew_at: float = math.inf


class Credentials:
    """The credentials that a provider returned last. Thread-safe.

    Parameters
    ----------
    provider
        Returns a mapping, or an awaitable of one.
    """

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._asking = new_rlock()
        self._answer: Answer | None = None
        self._useless_until = -math.inf

    def __repr__(self) -> str:
        # fsspec tells filesystems apart by the text of their options
        return f"<credentials {id(self):#x}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return credentials_of, (self.provider,)

    def current(self) -> Answer:
        """The credentials that hold now.

        Raises
        ------
        InvalidRequestError
            If the provider returns no mapping.
        SourceUnavailableError
            If the provider fails.
        """
        with self._asking:
            if self._answer is None or time.time() >= self._answer.renew_at:
                self._answer = self._ask()
            return self._answer

    def after(self, refused: Answer, *, is_plain: bool) -> Answer | None:
        """New credentials in place of refused ones; None if there are no others.

        Parameters
        ----------
        is_plain
            Whether the refusal may have another cause than the credentials, as that of one file. If
            new credentials did not help a moment ago, none are asked for.
        """
        with self._asking:
            if is_plain and time.monotonic() < self._useless_until:
                return None
            if self._answer is refused or self._answer is None:
                self._answer = self._ask()
            if self._answer.options != refused.options:
                return self._answer
            self.no_use()
            return None

    def no_use(self) -> None:
        """Note that a server refuses also new credentials."""
        self._useless_until = time.monotonic() + _SECONDS_WITHOUT_USE

    async def current_on_loop(self) -> Answer:
        """`current`, for an event loop: a provider may wait for a server, or for this loop."""
        import asyncio

        answer = self._answer
        if answer is not None and time.time() < answer.renew_at:
            return answer
        return await asyncio.to_thread(self.current)

    async def after_on_loop(self, refused: Answer, *, is_plain: bool) -> Answer | None:
        """`after`, for an event loop."""
        import asyncio

        return await asyncio.to_thread(self.after, refused, is_plain=is_plain)

    def _ask(self) -> Answer:
        asked = time.time()
        try:
            returned = self.provider()
            if inspect.isawaitable(returned):
                returned = _awaited(returned)
        except GridrefError:
            raise
        except Exception as error:  # noqa: BLE001 - of whatever the provider uses
            reason = f"{PROVIDER} failed: {type(error).__name__}: {self._hidden(error)}"
            raise SourceUnavailableError(reason) from None
        if not isinstance(returned, Mapping):
            raise InvalidRequestError(
                f"{PROVIDER} returned {type(returned).__name__}: it must return a mapping, like"
                ' {"key": ..., "secret": ..., "token": ..., "expires_at": ...}'
            )
        options = {_common_name(name): value for name, value in returned.items()}
        expires = _seconds(options.pop(_EXPIRY, None))
        lifetime = expires - asked
        ahead = min(_MOST_AHEAD_SECONDS, lifetime / 10)
        return Answer(options, expires - ahead if lifetime > 0 else math.inf)

    def _hidden(self, error: BaseException) -> str:
        """The text of an error, without what the provider returned last."""
        text = without_secrets(str(error))
        for secret in _texts(self._answer.options) if self._answer else ():
            text = text.replace(secret, "...") if len(secret) >= _LEAST_HIDDEN else text
        return text


def _common_name(name: Any) -> str:
    return _NAMES.get(str(name).replace("_", "").lower(), str(name))


def _texts(value: Any) -> list[str]:
    """All texts in options, those of inner options too."""
    if isinstance(value, str):
        return [value]
    return (
        [t for each in value.values() for t in _texts(each)] if isinstance(value, Mapping) else []
    )


def _awaited(returned: Any) -> Any:
    from fsspec.asyn import get_loop, sync

    async def wait() -> Any:
        return await returned

    return sync(get_loop(), wait)


def _seconds(expires: Any) -> float:
    """A time of expiry in seconds since 1970; without time zone it is of UTC."""
    if expires is None:
        return math.inf
    if isinstance(expires, str):
        try:
            expires = datetime.fromisoformat(expires)
        except ValueError:
            expires = ""
    if isinstance(expires, datetime):
        return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).timestamp()
    if isinstance(expires, int | float):
        return float(expires)
    raise InvalidRequestError(
        f"{PROVIDER} must return {_EXPIRY} as a datetime, a text like 2026-01-31T12:00:00Z, or"
        " seconds since 1970"
    )


def refused_after_all(url: str, status: int | str) -> SourceUnavailableError:
    """The error for a server that refuses also what the provider returned anew."""
    return SourceUnavailableError(
        f"the server refused the credentials ({status}), and new ones did not help: check what "
        f"{PROVIDER} returns (or what -O @FILE holds), and whether that may read this"
        " file",
        Place(source=url),
    )


# One `Credentials` for each provider: all files share what it returned

_MOST_KEPT = 256
_kept: dict[Any, Credentials] = {}
_keeping = new_lock()


def credentials_of(provider: Provider) -> Credentials:
    """The credentials of a provider; those of equal providers are the same in this process."""
    key: Any = provider
    try:
        hash(provider)
    except TypeError:
        key = id(provider)  # of no other object as long as its credentials are kept
    with _keeping:
        known = _kept.pop(key, None) or Credentials(provider)
        _kept[key] = known
        while len(_kept) > _MOST_KEPT:
            del _kept[next(iter(_kept))]
        return known


def has_provider(options: Any) -> bool:
    """Whether options of a filesystem are, or hold, a provider."""
    return callable(options) or (isinstance(options, Mapping) and PROVIDER in options)


def apart(options: Any) -> tuple[dict[str, Any], Credentials | None]:
    """The options of a filesystem that stay as they are, and the credentials of their provider."""
    if not has_provider(options):
        return dict(options), None
    provider = options if callable(options) else options[PROVIDER]
    own = {} if callable(options) else {k: v for k, v in options.items() if k != PROVIDER}
    if not callable(provider):
        raise InvalidRequestError(
            f"{PROVIDER} is a function that returns a mapping, got {type(provider).__name__}"
        )
    config = getattr(provider, "config", None)
    if isinstance(config, Mapping) and "region" in config:  # obstore's providers know it
        region = {"region_name": config["region"]}
        own["client_kwargs"] = {**region, **own.get("client_kwargs", {})}
    return own, credentials_of(provider)


def settled(options: Any) -> dict[str, Any]:
    """Options of a filesystem with what their provider returns now in its place."""
    own, credentials = apart(options)
    return own if credentials is None else {**own, **credentials.current().options}
