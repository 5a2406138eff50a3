"""Yesterday's plan as today's contract: what differs from it beyond what it says is a problem."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gridref.combine import Combination
from gridref.errors import InvalidRequestError, Problem

__all__ = ["Expected", "as_expected", "plan_document"]

type Expected = str | os.PathLike[str] | Mapping[str, Any]
"""A plan: what ``gridref plan --json`` writes, as a file or as what is in it."""

_ADVICE = "expect= asks for the plan that was saved; save a new one if this is meant"


def plan_document(combination: Combination) -> dict[str, Any]:
    """What a plan is compared by: its drifts, and its arrays with dtypes and dimensions."""
    arrays = {} if combination.group is None else combination.group.all_arrays()
    return {
        "drifts": [drift.to_json() for drift in combination.report],
        "arrays": {
            path: {"dims": list(array.dims), "dtype": str(array.dtype)}
            for path, array in arrays.items()
        },
    }


def as_expected(combination: Combination, expect: Expected | None) -> Combination:
    """The combination, with a problem for each thing that a saved plan does not hold.

    Files and sizes may change. A drift that the plan has, with values that it has, is as expected,
    whichever files it is in; so are any values where the plan has another for each file.

    Parameters
    ----------
    combination
        What was planned or built today.
    expect
        The plan; None expects nothing.

    Raises
    ------
    InvalidRequestError
        If the plan cannot be read, or is none.
    """
    if expect is None or combination.group is None:
        return combination
    saved, today = _read(expect), plan_document(combination)
    found = (*_unlike_arrays(saved, today), *_unlike_drifts(saved, today))
    problems = tuple(
        Problem("unexpected", f"{message}; {_ADVICE}", variable) for variable, message in found
    )
    return replace(combination, problems=(*combination.problems, *problems))


def _read(expect: Expected) -> Mapping[str, Any]:
    if isinstance(expect, Mapping):
        plan: Any = expect
    else:
        try:
            plan = json.loads(Path(expect).read_bytes())
        except (OSError, ValueError) as error:
            raise InvalidRequestError(f"expect={os.fspath(expect)!r}: {error}") from error
    if not _is_plan(plan):
        raise InvalidRequestError("expect= takes a plan as gridref plan --json writes it")
    return plan  # type: ignore[no-any-return]


def _is_plan(plan: Any) -> bool:
    """Whether all that is compared is there, and of the types that `plan_document` makes."""
    try:
        return all(map(_is_drift, plan["drifts"])) and all(
            isinstance(array["dims"], list) and isinstance(array["dtype"], str)
            for array in plan["arrays"].values()
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        return False


def _is_drift(drift: Any) -> bool:
    named = [*_key(drift), *(case["value"] for case in drift["cases"])]
    spans = [span for case in drift["cases"] for span in case.get("files", ())]
    return (
        all(isinstance(text, str) for text in named)
        and isinstance(drift.get("n_cases", 0), int)
        and all(len(span) == 2 for span in spans)
    )


def _unlike_arrays(saved: Mapping[str, Any], today: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Arrays that are new, gone or of another kind: path and what is wrong."""
    before, now = saved["arrays"], today["arrays"]
    for path in dict.fromkeys([*before, *now]):
        if path not in now:
            yield path, "a variable is gone"
        elif path not in before:
            yield path, "a variable is new"
        else:
            for name in ("dims", "dtype"):
                if before[path][name] != now[path][name]:
                    yield path, f"{name} were {before[path][name]}, and are {now[path][name]}"


def _unlike_drifts(saved: Mapping[str, Any], today: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Drifts that are new, or have new values: variable and what is wrong."""
    known: dict[tuple[str, str, str], set[str]] = {}
    free = set()
    for drift in saved["drifts"]:
        known.setdefault(_key(drift), set()).update(_values(drift))
        if drift.get("n_cases", 0) > len(drift["cases"]) or _has_one_value_a_file(drift):
            free.add(_key(drift))
    for drift in today["drifts"]:
        cause, variable, resolution = key = _key(drift)
        values = _values(drift) - known.get(key, set())
        listed = ", ".join(sorted(values))
        if key not in known:
            yield variable, f"a new drift: {cause} ({listed}) -> {resolution}"
        elif values and key not in free:
            yield variable, f"new values of a drift: {cause} ({listed})"


def _has_one_value_a_file(drift: Mapping[str, Any]) -> bool:
    """Whether values are another in each file, like a date of writing: the next is, too."""
    spans = [span for case in drift["cases"] for span in case.get("files", ())]
    each_once = len(spans) == len(drift["cases"]) > 1
    return each_once and all(first == last for first, last in spans)


def _key(drift: Mapping[str, Any]) -> tuple[str, str, str]:
    return drift["cause"], drift["variable"], drift["resolution"]


def _values(drift: Mapping[str, Any]) -> set[str]:
    return {case["value"] for case in drift["cases"]}
