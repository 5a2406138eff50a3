"""Index files that say what is in a GRIB file, by eccodes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tests.grib_files import fields_of


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
