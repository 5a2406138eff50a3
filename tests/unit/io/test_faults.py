"""How long apart failures are tried again, with a clock that nobody waits for."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest
from botocore.exceptions import NoCredentialsError

from gridref.errors import SourceUnavailableError
from gridref.io import RetryPolicy, faults


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were slept, with no chance in them."""
    seconds: list[float] = []
    monkeypatch.setattr(faults.time, "sleep", seconds.append)
    monkeypatch.setattr(faults.random, "random", lambda: 0.0)
    return seconds


class Failing:
    def __init__(self, n_failures: int, error: Exception) -> None:
        self.n_failures, self.error, self.n_calls = n_failures, error, 0

    def __call__(self) -> str:
        self.n_calls += 1
        if self.n_calls <= self.n_failures:
            raise self.error
        return "there"


def test_delays_double_up_to_the_maximum(slept: list[float]) -> None:
    assert list(RetryPolicy(6, first_delay=0.5, max_delay=3).delays()) == [0.5, 1, 2, 3, 3]
    assert list(RetryPolicy(1).delays()) == []
    assert list(RetryPolicy(2, first_delay=9, max_delay=5).delays()) == [5]


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 1.0), (0.5, 1.125), (1.0, 1.25)])
def test_up_to_a_quarter_is_added(
    monkeypatch: pytest.MonkeyPatch, chance: float, factor: float
) -> None:
    monkeypatch.setattr(faults.random, "random", lambda: chance)
    assert list(RetryPolicy(3, first_delay=2, max_delay=3).delays()) == [2 * factor, 3 * factor]


@pytest.mark.parametrize("n_failures", [0, 1, 3])
def test_each_failure_is_waited_for_once(slept: list[float], n_failures: int) -> None:
    action = Failing(n_failures, ConnectionResetError("gone"))
    assert RetryPolicy(4, first_delay=1).call(action, "s3://a") == "there"
    assert slept == [1, 2, 4][:n_failures]
    assert action.n_calls == n_failures + 1


def test_the_last_failure_is_not_waited_for(slept: list[float]) -> None:
    action = Failing(9, TimeoutError("late"))
    with pytest.raises(SourceUnavailableError, match="late"):
        RetryPolicy(3, first_delay=1).call(action, "s3://a")
    assert (slept, action.n_calls) == ([1, 2], 3)


def test_lasting_failures_are_not_waited_for(slept: list[float]) -> None:
    action = Failing(1, PermissionError("no"))
    with pytest.raises(SourceUnavailableError, match="no permission"):
        RetryPolicy(3).call(action, "s3://a")
    assert (slept, action.n_calls) == ([], 1)


class ThrottledError(Exception):
    """What aiohttp raises for an answer with these fields."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(status)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize("status", [429, 503])
def test_pauses_that_a_server_asks_for_do_not_count_as_attempts(
    slept: list[float], status: int
) -> None:
    action = Failing(9, ThrottledError(status, Retry_After="7"))
    assert RetryPolicy(2, first_delay=1).call(action, "https://a") == "there"
    assert slept == [7] * 9


def test_pauses_that_a_server_asks_for_are_bounded(slept: list[float]) -> None:
    action = Failing(99, ThrottledError(503, Retry_After="7"))
    with pytest.raises(SourceUnavailableError):
        RetryPolicy(max_wait=30).call(action, "https://a")
    assert slept == [7] * 4
    action = Failing(1, ThrottledError(503, Retry_After="999999999999"))
    with pytest.raises(SourceUnavailableError):
        RetryPolicy().call(action, "https://a")
    assert slept == [7] * 4


def test_pauses_may_be_told_as_a_date(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults.time, "time", lambda: 784111777.0 - 5)
    action = Failing(1, ThrottledError(503, Retry_After="Sun, 06 Nov 1994 08:49:37 GMT"))
    assert RetryPolicy().call(action, "https://a") == "there"
    assert slept == [5]


@pytest.mark.parametrize("text", ["", "soon", "-3", "0", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_without_a_sensible_pause_attempts_go_on_as_ever(slept: list[float], text: str) -> None:
    action = Failing(9, ThrottledError(503, Retry_After=text))
    with pytest.raises(SourceUnavailableError):
        RetryPolicy(3, first_delay=1).call(action, "https://a")
    assert slept == [1, 2]


def test_other_failures_ask_for_no_pause(slept: list[float]) -> None:
    action = Failing(1, ThrottledError(500, Retry_After="7"))
    assert RetryPolicy(first_delay=1).call(action, "https://a") == "there"
    assert slept == [1]


def test_what_another_library_says_is_cut() -> None:
    said = faults.unavailable("/d/a.nc", OSError("x" * 15_000))
    assert len(str(said)) < 700
    assert "xxx…" in str(said)


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        async def ask() -> None:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}"):
                pass

        with pytest.raises(aiohttp.ClientConnectorError) as refused:
            asyncio.run(ask())
    said = str(faults.unavailable("http://127.0.0.1/a.nc", refused.value))
    assert said.startswith(f"no server answers at 127.0.0.1, port {port}: check the address")


def test_missing_credentials_are_named() -> None:
    said = str(faults.unavailable("s3://bucket/a.nc", NoCredentialsError()))
    assert said.startswith("no credentials were found: give them in storage_options")
