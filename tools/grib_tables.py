"""Writes ``src/gridref/formats/grib/parameters.zip`` out of the definitions of eccodes.

``python tools/grib_tables.py`` after installing another eccodes. A definition file ("concept") has
entries like ``'2t' = { discipline = 0 ; parameterCategory = 0 ; ... }``. An entry is kept if a scan
knows all of its keys.

Source: eccodes, definitions/grib1 and definitions/grib2 (Apache License 2.0, ECMWF).
"""

from __future__ import annotations

import ctypes
import json
import re
import zipfile
from pathlib import Path

import eccodes
import eccodeslib

from gridref.formats.grib.product import ALL_PROCESSINGS

HERE = Path(__file__).parents[1]
TARGET = HERE / "src/gridref/formats/grib/parameters.zip"
LIBRARY = next(Path(eccodeslib.__file__).parent.glob("lib*/libeccodes_memfs.*"))
ENTRY = re.compile(r"""(?:'([^'\n]*)'|"([^"\n]*)")\s*=\s*\{([^}]*)\}""")
VALUE = re.compile(r"""['"]?-?\d+['"]?|missing\(\)|\[[\d,]+\]""")
WMO = "wmo"
CENTRES = ("ecmf", "kwbc", "edzw", "egrr", "lfpw", "eswi", "efkl", "ekmi", "cnmc", "rjtd", "ammc")
NAMES = ("shortName", "name", "units", "paramId")
PRODUCT_KEYS = frozenset(
    {
        "discipline",
        "parameterCategory",
        "parameterNumber",
        "typeOfGeneratingProcess",
        "typeOfFirstFixedSurface",
        "scaleFactorOfFirstFixedSurface",
        "scaledValueOfFirstFixedSurface",
        "typeOfSecondFixedSurface",
        "scaleFactorOfSecondFixedSurface",
        "scaledValueOfSecondFixedSurface",
        "typeOfStatisticalProcessing",
        ALL_PROCESSINGS,
        "indicatorOfUnitForTimeRange",
        "lengthOfTimeRange",
        "constituentType",
        "aerosolType",
        "is_chemical",
        "is_aerosol",
        "is_aerosol_optical",
        "typeOfSizeInterval",
        "scaleFactorOfFirstSize",
        "scaledValueOfFirstSize",
        "scaleFactorOfSecondSize",
        "scaledValueOfSecondSize",
        "typeOfWavelengthInterval",
        "scaleFactorOfFirstWavelength",
        "scaledValueOfFirstWavelength",
        "scaleFactorOfSecondWavelength",
        "scaledValueOfSecondWavelength",
        "satelliteSeries",
        "satelliteNumber",
        "instrumentType",
        "scaledValueOfCentralWaveNumber",
        "probabilityType",
        "scaleFactorOfLowerLimit",
        "scaledValueOfLowerLimit",
        "localTablesVersion",
        "table2Version",
        "indicatorOfParameter",
        "indicatorOfTypeOfLevel",
        "level",
        "topLevel",
        "bottomLevel",
        "timeRangeIndicator",
    }
)
"""Numbers that a product may have: entries that ask for others are left out."""


def text_of(path: str) -> str:
    """A definition file, which the library keeps in memory; empty if there is none."""
    library, libc = ctypes.CDLL(str(LIBRARY)), ctypes.CDLL(None)
    library.codes_memfs_open.restype = ctypes.c_void_p
    libc.fread.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    file = library.codes_memfs_open(f"/MEMFS/definitions/{path}".encode())
    if not file:
        return ""
    buffer = ctypes.create_string_buffer(1 << 24)
    n_bytes = libc.fread(buffer, 1, len(buffer), file)
    return re.sub(r"#.*", "", buffer.raw[:n_bytes].decode())


def entries(path: str) -> list[tuple[str, dict[str, str]]]:
    """Names and their conditions."""
    found = []
    for single, double, body in ENTRY.findall(text_of(path)):
        conditions = dict(re.findall(r"(\w+)\s*=\s*([^;]+?)\s*;", body + ";"))
        conditions.pop("pressureUnits", None)  # whether a pressure is in hPa follows from its value
        processings = conditions.get("typeOfStatisticalProcessing", "")
        if processings.startswith("["):
            conditions[ALL_PROCESSINGS] = processings
            conditions["typeOfStatisticalProcessing"] = processings[1:-1].rpartition(",")[2]
        found.append((single or double, conditions))
    return found


def number(text: str) -> int | str | None:
    """None stands for a value that must be missing."""
    if text.startswith("["):
        return text[1:-1]
    return None if "missing" in text else int(text.strip("'\""))


def known(conditions: dict[str, str]) -> bool:
    plain = all(map(VALUE.fullmatch, conditions.values()))
    return plain and set(conditions) <= PRODUCT_KEYS


def table(folder: str, variant: str) -> dict[str, list]:
    """Entries by the number of their parameter: other conditions, short name, name, units, id."""
    names = [entries(f"{folder}/{what}{variant}.def") for what in NAMES]
    by_conditions = [
        {tuple(sorted(conditions.items())): name for name, conditions in each} for each in names[1:]
    ]
    found: dict[str, list] = {}
    for short, conditions in names[0]:
        key = tuple(sorted(conditions.items()))
        if known(conditions):
            row = [short, *(each.get(key, "") for each in by_conditions)]
            place, rest = placed(folder, conditions)
            found.setdefault(place, []).append([rest, *row])
    return found


def placed(folder: str, conditions: dict[str, str]) -> tuple[str, dict[str, int | None]]:
    first = (
        ("table2Version", "indicatorOfParameter")
        if folder.startswith("grib1")
        else ("discipline", "parameterCategory", "parameterNumber")
    )
    place = ".".join(conditions.get(key, "") for key in first)
    return place, {k: number(v) for k, v in conditions.items() if k not in first}


def named(folder: str, what: str) -> dict[str, list]:
    """Entries of one concept by the number of their parameter."""
    found: dict[str, list] = {}
    for name, conditions in entries(f"{folder}/{what}.def"):
        if known(conditions):
            place, rest = placed(folder, conditions)
            found.setdefault(place, []).append([rest, name])
    return found


def levels(folder: str, edition: str) -> list:
    """Conditions and names of the kinds of levels."""
    what = "typeOfLevel" if edition == "grib1" else "typeOfLevelConcept"
    return [
        [{k: number(v) for k, v in conditions.items()}, name]
        for name, conditions in entries(f"{folder}/{what}.def")
        if known(conditions)
    ]


def main() -> None:
    tables: dict = {"eccodes": {"version": eccodes.codes_get_api_version()}}
    for edition in ("grib1", "grib2"):
        folders = {WMO: edition} | {c: f"{edition}/localConcepts/{c}" for c in CENTRES}
        for centre, folder in folders.items():
            for variant in ("", ".lte33", ".legacy"):
                if rows := table(folder, variant):
                    tables[f"{edition}/{centre}{variant}"] = rows
            for what in ("cfVarName", "cfName"):
                if rows := named(folder, what):
                    tables[f"{edition}/{centre}/{what}"] = rows
            if rows := levels(folder, edition):
                tables[f"{edition}/{centre}/levels"] = {"all": rows}
    with zipfile.ZipFile(TARGET, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, rows in tables.items():
            lines = [f"\n{key}\t{json.dumps(rows[key], separators=(',', ':'))}" for key in rows]
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), "".join(lines) + "\n", 8, 9)
            print(f"{name:30} {len(rows)}")
    print(f"{TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
