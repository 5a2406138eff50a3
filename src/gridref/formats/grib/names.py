"""Name parameters and levels as eccodes and cfgrib do.

The table ``parameters.zip`` was made out of the definitions of eccodes by
``tools/grib_tables.py``. An entry has conditions on the numbers of a product; of the entries that
hold, the one with the most conditions gives the name. Tables of the centre come before those of
WMO, and these before those of ECMWF.

Source: eccodes, ``grib_accessor_class_concept``, ``definitions/grib2/parameters.def``.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from gridref.formats.grib.product import KeyValue, Product

UNKNOWN = "unknown"
_OLD_TABLES = 33
"""From the next version of WMO's tables on, ECMWF gives parameters other numbers (MTG2)."""
_WMO, _ECMWF = "wmo", "ecmf"
_VARIABLE, _STANDARD = "/cfVarName", "/cfName"
CENTRES = {
    1: "ammc",
    7: "kwbc",
    34: "rjtd",
    46: "sbsj",
    54: "cwao",
    74: "egrr",
    76: "rums",
    78: "edzw",
    80: "cnmc",
    82: "eswi",
    84: "lfpw",
    85: "lfpw",
    86: "efkl",
    94: "ekmi",
    98: "ecmf",
}
"""Abbreviations by common code table C-11, of centres that eccodes has tables for, and a few."""


@dataclass(frozen=True)
class Parameter:
    """The names of a parameter.

    Attributes
    ----------
    short, name, units
        Like ``"2t"``, ``"2 metre temperature"``, ``"K"``.
    number
        ``paramId`` of ECMWF; 0 if it has none.
    variable
        Name of a variable, like ``"t2m"``.
    standard_name
        CF's; empty if there is none.
    """

    short: str
    name: str
    units: str
    number: int
    variable: str
    standard_name: str


def parameter_of(product: Product) -> Parameter:
    """The names of a product's parameter; `UNKNOWN` and numbers if the tables do not have it."""
    centre = CENTRES.get(product.centre, "")
    keys = product.keys
    numbers: tuple[str, ...]
    if product.edition == 1:
        numbers = ("table2Version", "indicatorOfParameter")
    else:
        numbers = ("discipline", "parameterCategory", "parameterNumber")
    place = ".".join(str(keys[number]) for number in numbers)
    old = product.is_of_ecmwf and product.edition == 2 and product.tables_version <= _OLD_TABLES
    row = _row(f"grib{product.edition}", centre, ".lte33" if old else "", place, keys)
    if row is None:
        short, name, units, number = UNKNOWN, UNKNOWN, UNKNOWN, 0
        variable = "param_" + place.replace(".", "_")
        return Parameter(short, name, units, number, variable, "")
    short, name, units, number = row
    edition = f"grib{product.edition}"
    variable = _first(edition, centre, _VARIABLE, place, keys)
    standard_name = _first(edition, centre, _STANDARD, place, keys)
    if not variable:
        # "~" is how the tables say that there is no short name.
        variable = f"p{number}" if short[:1].isdigit() or short == "~" else short
    return Parameter(short, name, units, int(number or 0), variable, standard_name)


def level_type(product: Product) -> str:
    """The kind of level, like ``"isobaricInhPa"``; `UNKNOWN` if the tables do not have it."""
    found = _best(_entries(f"grib{product.edition}/levels", "all"), product.keys)
    return str(found[0]) if found else UNKNOWN


def _row(
    edition: str, centre: str, variant: str, place: str, keys: Mapping[str, KeyValue]
) -> Sequence[Any] | None:
    """Short name, name, units and number, out of the first tables that have the parameter."""
    for local, suffix in ((centre, variant), (_ECMWF, variant), (_ECMWF, ".legacy")):
        found = _best(_both(edition, local, suffix, place), keys)
        if found:
            return found
    return None


def _first(edition: str, centre: str, what: str, place: str, keys: Mapping[str, KeyValue]) -> str:
    for local in (centre, _ECMWF):
        found = _best(_both(edition, local, what, place), keys)
        if found:
            return str(found[0])
        if what == _VARIABLE and edition == "grib2":
            break
    return ""


def _both(edition: str, local: str, which: str, place: str) -> list[Sequence[Any]]:
    """Entries of a centre, and behind them those of WMO, which win where both hold."""
    return [row for at in (local, _WMO) for row in _entries(f"{edition}/{at}{which}", place)]


def _best(rows: Iterable[Sequence[Any]], keys: Mapping[str, KeyValue]) -> Sequence[Any]:
    """What the entry with the most conditions says, the last of several; empty if none holds."""
    most, best = -1, ()
    for conditions, *said in rows:
        holds = all(name in keys and keys[name] == value for name, value in conditions.items())
        if holds and len(conditions) >= most:
            most, best = len(conditions), tuple(said)
    return best


@lru_cache(maxsize=4096)
def _entries(table: str, place: str) -> Sequence[Sequence[Any]]:
    """The line of a table: most are never parsed."""
    text = _text(table)
    start = text.find(f"\n{place}\t".encode())
    if start < 0:
        return ()
    entries: Sequence[Sequence[Any]] = json.loads(
        text[text.index(b"\t", start) : text.index(b"\n", start + 1)]
    )
    return entries


@cache
def _text(table: str) -> bytes:
    """A table; empty if there is none."""
    path = files("gridref.formats.grib").joinpath("parameters.zip")
    with path.open("rb") as opened, zipfile.ZipFile(opened) as tables:
        return tables.read(table) if table in tables.NameToInfo else b""
