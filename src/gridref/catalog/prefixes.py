"""Addresses of sources as a prefix, which many share, and a path. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["split"]


def split(
    urls: Sequence[str], known: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[int], list[str]]:
    """Split addresses; a prefix is a directory that all new ones have in common.

    Parameters
    ----------
    urls
        Addresses.
    known
        Prefixes that are there already: they are used where they fit.

    Returns
    -------
    tuple
        All prefixes, the known ones first; the number of each address' prefix; and its rest.
    """
    prefixes = list(known)
    new = [url for url in urls if _fitting(url, prefixes) is None]
    if new:
        low, high = min(new), max(new)
        n_alike = next(
            (i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low)
        )
        prefixes.append(low[: low.rfind("/", 0, n_alike) + 1])
    numbers = [_fitting(url, prefixes) or 0 for url in urls]
    rest = [url[len(prefixes[number]) :] for url, number in zip(urls, numbers, strict=True)]
    return tuple(prefixes), numbers, rest


def _fitting(url: str, prefixes: Sequence[str]) -> int | None:
    """The number of the first prefix that an address begins with."""
    return next((i for i, prefix in enumerate(prefixes) if url.startswith(prefix)), None)
