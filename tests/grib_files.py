"""GRIB files of the tests, what eccodes reads from them, and index files of them."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEYS = (
    "shortName",
    "cfVarName",
    "name",
    "units",
    "cfName",
    "paramId",
    "typeOfLevel",
    "gridType",
    "stepType",
    "level:float",
    "dataDate",
    "dataTime",
    "startStep:int",
    "endStep:int",
    "edition",
)


def write_grib(path: Path, *messages: dict[str, Any]) -> Path:
    """Write messages: a sample of eccodes, with keys that are set in their order, and values.

    ``{"sample": "regular_ll_pl_grib2", "keys": {"shortName": "t"}, "values": array}``. Holes are
    NaN. ``"multi": n`` puts the n messages from this one on into one, sharing sections 1 to 3.
    """
    _run("write", path, list(messages))
    return path


def fields_of(path: Path) -> list[dict[str, Any]]:
    """Each field of a file: keys, and ``values``, ``latitudes``, ``longitudes`` as arrays."""
    found: list[dict[str, Any]] = _run("read", path, None)
    return found


def message(
    values: NDArray[Any] | None = None, sample: str = "regular_ll_pl_grib2", **keys: Any
) -> dict[str, Any]:
    return {"sample": sample, "keys": keys, "values": values}


def field(n_rows: int = 3, n_columns: int = 4, seed: int = 0, **keys: Any) -> dict[str, Any]:
    """A message of edition 2 on a small grid of degrees, with random values."""
    values = np.random.default_rng(seed).normal(280, 10, (n_rows, n_columns))
    grid = {
        "Ni": n_columns,
        "Nj": n_rows,
        "latitudeOfFirstGridPointInDegrees": 10.0 * n_rows,
        "latitudeOfLastGridPointInDegrees": 10.0,
        "longitudeOfFirstGridPointInDegrees": 0.0,
        "longitudeOfLastGridPointInDegrees": 10.0 * (n_columns - 1),
        "iDirectionIncrementInDegrees": 10.0,
        "jDirectionIncrementInDegrees": 10.0,
    }
    begin = {key: keys.pop(key) for key in ("dataDate", "dataTime") if key in keys}
    return message(values, **grid, **begin, **keys)  # ends of windows are computed from them


def _run(what: str, path: Path, given: Any) -> Any:
    worker = _worker()
    assert worker.stdin is not None
    assert worker.stdout is not None
    pickle.dump((what, str(path), given), worker.stdin)
    worker.stdin.flush()
    failed, answer = pickle.load(worker.stdout)
    if failed:
        raise AssertionError(answer)
    return answer


@cache
def _worker() -> subprocess.Popen[bytes]:
    """One for all: eccodes takes a second to load. It ends with this process."""
    return subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _serve() -> None:
    """Answer until nobody asks."""
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # eccodes must not write among the answers
    while True:
        try:
            what, path, given = pickle.load(asked)
        except EOFError:
            return
        try:
            answer = (False, _write(path, given) if what == "write" else _read(path))
        except Exception:  # noqa: BLE001 - whoever asked raises it
            answer = (True, traceback.format_exc())
        pickle.dump(answer, answers)
        answers.flush()


def _write(path: str, messages: Sequence[dict[str, Any]]) -> None:
    import eccodes

    with open(path, "wb") as file:
        multi, left = None, 0
        for each in messages:
            handle = eccodes.codes_grib_new_from_samples(each["sample"])
            values = each["values"]
            for key, value in each["keys"].items():
                if isinstance(value, list | np.ndarray):
                    eccodes.codes_set_array(handle, key, value)
                else:
                    eccodes.codes_set(handle, key, value)
            if values is not None:
                flat = np.asarray(values, float).reshape(-1)
                if np.isnan(flat).any():
                    eccodes.codes_set(handle, "bitmapPresent", 1)
                    eccodes.codes_set(handle, "missingValue", 9999.0)
                    flat = np.where(np.isnan(flat), 9999.0, flat)
                eccodes.codes_set_values(handle, flat)
            if each.get("multi"):
                multi, left = eccodes.codes_grib_multi_new(), each["multi"]
            if multi is None:
                eccodes.codes_write(handle, file)
            else:
                eccodes.codes_grib_multi_append(handle, 4, multi)
                left -= 1
                if not left:
                    eccodes.codes_grib_multi_write(multi, file)
                    multi = None


def _read(path: str) -> list[dict[str, Any]]:
    import eccodes

    eccodes.codes_grib_multi_support_on()
    found = []
    with open(path, "rb") as file:
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            about: dict[str, Any] = {}
            for key in (*KEYS, "number"):
                try:
                    name, _, kind = key.partition(":")
                    kinds = {"float": float, "int": int}
                    about[name] = eccodes.codes_get(handle, name, kinds.get(kind))
                except eccodes.CodesInternalError:
                    about[name] = None
            about["offset"] = eccodes.codes_get(handle, "offset", int)
            eccodes.codes_set(handle, "missingValue", -9e33)
            values = eccodes.codes_get_values(handle)
            about["values"] = np.where(values == -9e33, np.nan, values)
            for key in ("latitudes", "longitudes"):
                try:
                    about[key] = eccodes.codes_get_array(handle, key)
                except eccodes.CodesInternalError:
                    about[key] = None
            found.append(about)
            eccodes.codes_release(handle)
    return found


if __name__ == "__main__":
    _serve()


@cache
def idx(path: Path) -> str:
    """The lines that wgrib2 prints."""
    lines = []
    for number, about in enumerate(fields_of(path), 1):
        begin, end = about["startStep"], about["endStep"]
        when = (
            f"{end} hour fcst"
            if about["stepType"] == "instant"
            else (f"{begin}-{end} hour acc fcst")
        )
        start = f"{about['dataDate']}{about['dataTime'] // 100:02}"
        what = f"{about['shortName'].upper()}:{about['level']:g} {about['typeOfLevel']}"
        lines.append(f"{number}:{about['offset']}:d={start}:{what}:{when}:\n")
    return "".join(lines)


@cache
def index(path: Path) -> str:
    """The lines of ECMWF."""
    lines = []
    found = fields_of(path)
    stops = [about["offset"] for about in found[1:]] + [path.stat().st_size]
    for about, stop in zip(found, stops, strict=True):
        told = {
            "date": str(about["dataDate"]),
            "time": f"{about['dataTime']:04}",
            "type": "pf" if about["number"] else "fc",
            "step": str(about["endStep"]),
            "levtype": about["typeOfLevel"],
            "levelist": str(about["level"]),
            "param": about["shortName"],
            "_offset": about["offset"],
            "_length": stop - about["offset"],
        }
        if about["number"]:
            told["number"] = str(about["number"])
        lines.append(json.dumps(told) + "\n")
    return "".join(lines)
