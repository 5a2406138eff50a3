"""Counters of one server process, in the Prometheus text format (version 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter

__all__ = ["Metrics"]

_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Metrics:
    """Counts requests. Safe for threads."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0
        self._sent_bytes = 0
        self._aborted = 0
        self._lock = threading.Lock()

    def count(self, route: str, method: str, status: int, n_bytes: int, seconds: float) -> None:
        """Count an answered request."""
        with self._lock:
            self._requests[route, method, status] += 1
            self._buckets[bisect_left(_BUCKETS, seconds)] += 1
            self._seconds += seconds
            self._sent_bytes += n_bytes

    def count_aborted(self) -> None:
        """Count a response that was broken off because a source failed half way."""
        with self._lock:
            self._aborted += 1

    def render(self, gauges: dict[str, tuple[str, float]]) -> str:
        """The text, with further values by name: their help and their value."""
        with self._lock:
            lines = _head("gridref_http_requests_total", "counter", "Answered requests.")
            lines += [
                f'gridref_http_requests_total{{route="{route}",method="{method}",status="{status}"}}'
                f" {count}"
                for (route, method, status), count in sorted(self._requests.items())
            ]
            lines += self._histogram()
            lines += _value(
                "gridref_http_sent_bytes_total", "Bytes of bodies sent.", self._sent_bytes
            )
            lines += _value(
                "gridref_http_aborted_total",
                "Responses broken off because a source failed half way.",
                self._aborted,
            )
        for name, (help_text, value) in gauges.items():
            lines += _value(name, help_text, value)
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name = "gridref_http_request_seconds"
        lines = _head(name, "histogram", "Time from request to the end of the response.")
        total = 0
        for bound, count in zip((*_BUCKETS, "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self._seconds:.6f}", f"{name}_count {total}"]


def _head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _value(name: str, help_text: str, value: float) -> list[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    return [*_head(name, kind, help_text), f"{name} {value}"]
