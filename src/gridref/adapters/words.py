"""Numbers as people write them."""

from __future__ import annotations

__all__ = ["human_bytes"]


def human_bytes(n_bytes: float) -> str:
    """A size as people write it, like ``1.2 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(n_bytes) < 1000 or unit == "TB":
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    raise AssertionError
