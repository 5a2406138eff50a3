"""Times of calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best(call: Callable[[], object], n_rounds: int = 5) -> float:
    """Seconds of the quickest of some runs."""
    return best_of({"": call}, n_rounds)[""]


def best_of(calls: Mapping[str, Callable[[], object]], n_rounds: int = 5) -> dict[str, float]:
    """Seconds of the quickest run of each call. They take turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(n_rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            found[name] = min(found[name], time.perf_counter() - began)
    return found
