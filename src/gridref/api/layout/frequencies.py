"""Find how often files have values: daily, monthly, six-hourly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gridref.combine.options import Read
from gridref.errors import InvalidRequestError, Message, Option, Place, Problem
from gridref.model.array import VirtualGroup
from gridref.model.times import DAY_NS, TimeBase

_CALENDAR = (("yearly", 359, 367), ("monthly", 27.5, 31.5), ("daily", 0.999, 1.001))
"""Names of spacings in days, with the least and the most."""


def spacing_problem(scanned: Sequence[tuple[str, VirtualGroup]], read: Read) -> Problem | None:
    """The problem that files of different variables have times of different spacing."""
    known: dict[str, list[str]] = {}
    for file, group in scanned:
        name = _spacing(group, read)
        if name is not None:
            known.setdefault(name, []).append(file)
    if len(known) < 2:
        return None
    cases = (f"{name} in {len(files)} files like {files[0]}" for name, files in known.items())
    shown = "; ".join(cases)
    message = Message(
        f"times are {shown}: ",
        Option("split", "frequency", "layout=Groups(frequency=True)"),
        " puts each into a group, ",
        Option("join", "outer"),
        " puts all on one axis with gaps",
    )
    return Problem("spacing-differs", message, sources=tuple(files[0] for files in known.values()))


def frequency(group: VirtualGroup, read: Read, file: str) -> str:
    """How often a file has values: its attribute ``frequency``, as in CMIP, or from its times."""
    named = group.attrs.get("frequency")
    if isinstance(named, str) and named.strip():
        return named.strip()
    if not _times(group):
        return "fixed"
    name = _spacing(group, read)
    if name is None:
        raise InvalidRequestError(
            Message(
                "it has a single time and no attribute 'frequency', so its time step is unknown: "
                "group the files by a field of the pattern or by another attribute (",
                Option("group_by", "model", "layout=Groups('model')"),
                ")",
            ),
            Place(source=file),
        )
    return name


def _times(group: VirtualGroup) -> list[str]:
    """Coordinates of dimensions of time."""
    return [
        name
        for name, array in group.arrays.items()
        if array.dims == (name,) and TimeBase.of(array.attrs) is not None
    ]


def _spacing(group: VirtualGroup, read: Read) -> str | None:
    """The usual distance between times in words; None of fewer than two."""
    for name in _times(group):
        array = group.arrays[name]
        base = TimeBase.of(array.attrs)
        if base is not None and array.shape[0] > 1:
            steps = np.abs(np.diff(np.asarray(read(array), np.float64))) * base.unit_ns
            return _in_words(_median(steps))
    return None


def _median(steps: NDArray[np.float64]) -> float:
    """The median; numpy's takes far longer for the few times of a file."""
    ordered, half = np.sort(steps), len(steps) // 2
    return float(ordered[half] if len(steps) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _in_words(step_ns: float) -> str:
    days = step_ns / DAY_NS
    for name, least, most in _CALENDAR:
        if least <= days <= most:
            return name
    for name, length in (("days", 1), ("hourly", 1 / 24), ("minutes", 1 / 1440)):
        count = days / length
        if count >= 0.999 and abs(count - round(count)) < 1e-3:
            return name if round(count) == 1 else f"{round(count)}{name}"
    return f"{days * 86400:g}seconds"
