"""The one cache: its bound, what it drops, and threads that ask at the same time."""

import pickle
import threading
import time

import numpy as np
import pytest

from gridref.cache import LRU, cache_bytes, nbytes_of
from gridref.errors import InvalidRequestError


def sized(max_bytes: int, **options: int) -> LRU[str]:
    return LRU[str](max_bytes, len, **options)


def kept(cache: LRU[str], keys: str) -> str:
    return "".join(key for key in keys if key in cache)


def test_values_used_longest_ago_are_dropped() -> None:
    cache = sized(3)
    for key in "abc":
        cache.put(key, "1")
    assert cache.get("a") == "1"
    cache.put("d", "1")
    assert kept(cache, "abcd") == "acd"
    assert (cache.n_bytes, len(cache)) == (3, 3)


def test_a_value_of_exactly_the_bound_is_kept() -> None:
    cache = sized(4)
    cache.put("a", "1234")
    assert cache.get("a") == "1234"


def test_nothing_is_kept_under_a_bound_of_0() -> None:
    cache = sized(0)
    assert cache.put("a", "1") == "1"
    assert cache.get("a") is None
    assert (cache.n_bytes, len(cache)) == (0, 0)


def test_values_without_bytes_are_kept_under_a_bound_of_0() -> None:
    cache = sized(0)
    cache.put("a", "")
    assert cache.get("a") == ""


def test_one_too_large_drops_nothing_else() -> None:
    cache = sized(3)
    cache.put("a", "1")
    assert cache.put("b", "1234") == "1234"
    assert kept(cache, "ab") == "a"
    assert cache.n_bytes == 1


def test_one_too_large_takes_away_the_value_it_replaces() -> None:
    cache = sized(3)
    cache.put("a", "1")
    cache.put("a", "1234")
    assert cache.get("a") is None
    assert cache.n_bytes == 0


def test_a_value_is_replaced() -> None:
    cache = sized(4)
    cache.put("a", "1")
    cache.put("a", "123")
    assert cache.get("a") == "123"
    assert (cache.n_bytes, len(cache)) == (3, 1)


@pytest.mark.parametrize(("keeps_last", "expected"), [(0, ""), (1, "c"), (2, "bc")])
def test_the_last_ones_are_kept_however_large(keeps_last: int, expected: str) -> None:
    cache = sized(3, keeps_last=keeps_last)
    for key in "abc":
        cache.put(key, "12345")
    assert kept(cache, "abc") == expected
    assert cache.n_bytes == 5 * len(expected)


def test_clear() -> None:
    cache = sized(3)
    cache.put("a", "1")
    cache.clear()
    assert (cache.get("a"), cache.n_bytes, len(cache)) == (None, 0, 0)


def test_pickles_keep_the_bounds_and_no_values() -> None:
    cache = LRU[np.ndarray](8, nbytes_of, keeps_last=1)
    cache.put("a", np.zeros(3))
    copy = pickle.loads(pickle.dumps(cache))
    assert (len(copy), copy.n_bytes, copy.max_bytes) == (0, 0, 8)
    copy.put("b", np.zeros(3))
    assert copy.n_bytes == 24


def test_a_value_is_loaded_once() -> None:
    cache = sized(4)
    loads: list[str] = []

    def load(key: str) -> str:
        loads.append(key)
        return "12"

    for key in "abacab":
        assert cache.get_or_load(key, lambda key=key: load(key)) == "12"  # type: ignore[misc]
    assert "".join(loads) == "abcb"


def test_a_failed_load_is_not_kept() -> None:
    cache = sized(4)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_load("a", lambda: str(1 / 0))
    assert cache.get_or_load("a", lambda: "1") == "1"


def ask_together(cache: LRU[str], load: object, n_threads: int = 8) -> list[object]:
    """What each of several threads gets that ask for one key while it is being loaded."""
    got: list[object] = []

    def ask() -> None:
        try:
            got.append(cache.get_or_load("a", load))  # type: ignore[arg-type]
        except OSError as error:
            got.append(error)

    threads = [threading.Thread(target=ask) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


@pytest.mark.parametrize("max_bytes", [0, 100])
def test_threads_share_one_load(max_bytes: int) -> None:
    cache = sized(max_bytes)
    loads: list[int] = []

    def load() -> str:
        loads.append(1)
        time.sleep(0.2)
        return "1"

    assert ask_together(cache, load) == ["1"] * 8
    assert len(loads) == 1


def test_threads_share_the_error_of_a_load() -> None:
    cache = sized(100)
    loads: list[int] = []

    def load() -> str:
        loads.append(1)
        time.sleep(0.2)
        raise OSError("gone")

    got = ask_together(cache, load)
    assert len(loads) == 1
    assert all(isinstance(error, OSError) for error in got)
    assert len(got) == 8


def test_who_claims_first_loads() -> None:
    cache = sized(100)
    ours, is_ours = cache.claim("a")
    others, is_theirs = cache.claim("a")
    assert (is_ours, is_theirs) == (True, False)
    assert cache.finish("a", "1") == "1"
    assert (ours.value(), others.result()) == ("1", "1")
    kept, is_ours = cache.claim("a")
    assert (kept.value(), is_ours) == ("1", False)


def test_a_failed_claim_can_be_claimed_again() -> None:
    cache = sized(100)
    load, _ = cache.claim("a")
    cache.fail("a", OSError("gone"))
    assert load.value() is None
    with pytest.raises(OSError, match="gone"):
        load.result()
    assert cache.claim("a")[1]


def test_threads_keep_the_bound() -> None:
    cache = sized(50)

    def work(seed: int) -> None:
        for number in range(300):
            key = str((number * seed) % 37)
            assert cache.get_or_load(key, lambda key=key: key * 5) == key * 5  # type: ignore[misc]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.n_bytes <= 50
    assert cache.n_bytes == sum(len(cache.get(str(n)) or "") for n in range(37))


@pytest.mark.parametrize(("text", "expected"), [("", 1 << 26), (" 4096 ", 4096), ("0", 0)])
def test_the_environment_sets_the_size_of_caches(
    text: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDREF_CACHE_BYTES", text)
    assert cache_bytes() == expected


@pytest.mark.parametrize("text", ["64 MB", "-1", "1e6"])
def test_a_size_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDREF_CACHE_BYTES", text)
    with pytest.raises(InvalidRequestError, match=r"GRIDREF_CACHE_BYTES .* a number of bytes"):
        cache_bytes()
