"""What a field is: its parameter, level, time and member, from its sections, and their names.

`product_1` and `product_2` take the product section of each edition apart. A `Product` holds the
numbers under the names that eccodes has for them, since the tables of parameters ask for these.

`parameter_of` and `level_type` name parameters and levels as eccodes and cfgrib do. The table
``parameters.zip`` was made out of the definitions of eccodes by ``tools/grib_tables.py``. An entry
has conditions on the numbers of a product; of the entries that hold, the one with the most
conditions gives the name. Tables of the centre come before those of WMO, and these before those of
ECMWF.

Sources: WMO Manual on Codes I.2, FM 92 GRIB: edition 1, section 1 with code tables 3 to 5; edition
2, section 1 and section 4 with templates 4.N, code tables 4.4, 4.5, 4.6, 4.7, 4.10. For names
eccodes, ``grib_accessor_class_concept``, ``definitions/grib2/parameters.def``.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from gridref.codecs.grib import MessageError
from gridref.codecs.grib_grids import signed

type KeyValue = int | str | None
"""A number of a product; a text of several, ``"102,1"``; None if it is missing."""

_MINUTE = 60
_UNITS = {
    0: _MINUTE,
    1: 3600,
    2: 86400,
    10: 3 * 3600,
    11: 6 * 3600,
    12: 12 * 3600,
    13: 1,
}
"""Seconds by code table 4.4, which is table 4 of edition 1 but for the last."""
_UNITS_1 = {**_UNITS, 13: 15 * _MINUTE, 14: 30 * _MINUTE, 254: 1}
_MONTHS = {3: 1, 4: 12, 5: 120, 6: 360, 7: 1200}
"""Months by the same table."""

_ECMWF = 98
_STEP_TYPES = dict(
    enumerate(("avg", "accum", "max", "min", "diff", "rms", "sd", "cov", "sdiff", "ratio"))
) | {10: "stdanom", 11: "sum", 100: "severity", 101: "mode"}
_STEP_TYPES_1 = {2: "range", 3: "avg", 4: "accum", 5: "diff", 6: "avg", 7: "avg"}
_SIGNS_1 = {6: (-1, -1), 7: (-1, 1)}
"""Code table 5: averages that begin, or also end, before the reference time."""

_PLAIN = {0: 0, 1: 0, 2: 0, 5: 0, 6: 0, 8: 0, 9: 0, 10: 0, 11: 0, 12: 0, 60: 0, 61: 0}
_CHEMICAL = dict.fromkeys((40, 41, 42, 43), 2)
_AEROSOL = dict.fromkeys((45, 46, 47), 13)
_OPTICAL = dict.fromkeys((48, 49), 24)
_SHIFTS = {**_PLAIN, **_CHEMICAL, **_AEROSOL, **_OPTICAL}
"""Octets before the generating process, by template, besides those of template 4.0."""
_ENSEMBLES = {1, 11, 41, 43, 45, 47, 49, 60, 61}
_DERIVED = {2, 12}
_PROBABILITIES = {5, 9}
_PERCENTILES = {6, 10}
_INTERVALS = {8: 0, 9: 13, 10: 1, 11: 3, 12: 2, 42: 0, 43: 3, 46: 0, 47: 3, 61: 10}
"""Octets between the second surface and the end of the interval, by template."""
_SATELLITE = 32
_PRESSURE, _VORTICITY = 100, 109
_TWOS = 0xFF

ALL_PROCESSINGS = "statisticalProcessings"
"""Our name for the processing of each range of time, where a field has several."""


@dataclass(frozen=True)
class Product:
    """A field but for its grid and values.

    Attributes
    ----------
    edition
        1 or 2.
    centre, subcentre, tables_version
        Common code table C-11, and the version of the tables.
    keys
        Numbers by the name that eccodes has for them; None where they are missing.
    level
        Height, pressure or number of its level, the upper one of a layer; None if it has none.
    bottom
        The lower level of a layer; None if it is no layer.
    time, step
        Seconds since 1970, and from there to the end of the forecast.
    window
        Seconds from the beginning to the end of what is averaged or accumulated; None if the field
        is of an instant.
    step_type
        Like ``"instant"``, ``"accum"``.
    number
        Member of the ensemble; None if it is of none.
    kind
        Tells apart what has the same name: a percentile, a mean of an ensemble, a probability.
    """

    edition: int
    centre: int
    subcentre: int
    tables_version: int
    keys: Mapping[str, KeyValue]
    level: float | None
    bottom: float | None
    time: int
    step: int
    window: int | None = None
    step_type: str = "instant"
    number: int | None = None
    kind: str = ""

    @property
    def is_of_ecmwf(self) -> bool:
        """Whether ECMWF's rules hold for it."""
        return _ECMWF in (self.centre, self.subcentre)


class UnknownProductError(MessageError):
    """A product of a kind that is not read."""


def _moment(year: int, month: int, day: int, *time: int) -> datetime:
    hour, minute, second = (*time, 0)[:3]
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise MessageError(f"its date is damaged: {error}") from error


def _seconds(count: int, unit: int, units: Mapping[int, int], start: datetime) -> int:
    """Seconds of a time range, which months and years make depend on its beginning."""
    if unit in units:
        return count * units[unit]
    if unit in _MONTHS:
        months = start.month - 1 + count * _MONTHS[unit]
        year = start.year + months // 12
        if not 1 <= year <= 9999:
            raise MessageError(f"its time range ends in the year {year}")
        day = min(start.day, 28)
        moment = start.replace(year=year, month=months % 12 + 1, day=day)
        return int((moment - start.replace(day=day)).total_seconds())
    raise MessageError(f"the unit of its time range is unknown, {unit}")


def _scaled(factor: int | None, value: int | None) -> float | None:
    if value is None:
        return None
    if not factor:
        return float(value)
    if abs(factor) > 20:
        raise MessageError(f"its level has the scale factor {factor}")
    return value / 10**factor if factor > 0 else float(value * 10**-factor)


# Edition 2


def product_2(discipline: int, identification: bytes, section: bytes) -> Product:
    """The product of section 4, in a message with this section 1."""
    if len(identification) < 19 or len(section) < 11:
        raise MessageError("its product is cut off")
    year, month, day, hour, minute, second = (
        int.from_bytes(identification[12:14], "big"),
        *identification[14:19],
    )
    start = _moment(year, month, day, hour, minute, second)
    template = int.from_bytes(section[7:9], "big")
    if template == _SATELLITE:
        shift = 0
    elif template in _SHIFTS:
        shift = _SHIFTS[template]
    else:
        raise UnknownProductError(f"its product has the template 4.{template}, which is not read")
    octets = _Section(section, shift)
    keys: dict[str, KeyValue] = {
        "discipline": discipline,
        "parameterCategory": section[9],
        "parameterNumber": section[10],
        "localTablesVersion": identification[10],
        "typeOfGeneratingProcess": octets.at(12),
        **_species(template, section),
    }
    unit, ahead = octets.at(18), octets.time(19)
    begins = _seconds(ahead, unit, _UNITS, start)
    common = {
        "edition": 2,
        "centre": int.from_bytes(identification[5:7], "big"),
        "subcentre": int.from_bytes(identification[7:9], "big"),
        "tables_version": identification[9],
        "keys": keys,
        "time": int(start.timestamp()),
        "step": begins,
    }
    if template == _SATELLITE:
        kind = _bands(octets, keys)
        return Product(**common, level=None, bottom=None, kind=kind)  # type: ignore[arg-type]
    surfaces = _surfaces(octets)
    keys |= surfaces
    level = _level(surfaces, "First")
    bottom = _level(surfaces, "Second") if surfaces["typeOfSecondFixedSurface"] != 255 else None
    more: dict[str, object] = {"kind": _kind(template, octets, keys)}
    if template in _ENSEMBLES and (octets.at(37) or 0 < octets.at(36) < 255):  # not of no ensemble
        more["number"] = octets.at(36)
    if template in _INTERVALS:
        more |= _interval(octets, _INTERVALS[template], keys, start, begins)
    return Product(**(common | more), level=level, bottom=bottom)  # type: ignore[arg-type]


class _Section:
    """Numbers in section 4; octets count from 1 and are those of template 4.0."""

    def __init__(self, section: bytes, shift: int) -> None:
        self.section = section
        self.shift = shift

    def raw(self, first: int, last: int) -> bytes:
        raw = self.section[first - 1 + self.shift : last + self.shift]
        if len(raw) != last - first + 1:
            raise MessageError("its product is cut off")
        return raw

    def at(self, octet: int) -> int:
        return self.raw(octet, octet)[0]

    def time(self, first: int) -> int:
        """A time range of 4 octets; NCEP writes negative ones as two's complements."""
        raw = self.raw(first, first + 3)
        return signed(raw) if raw[0] != _TWOS else int.from_bytes(raw, "big", signed=True)

    def number(self, first: int, last: int) -> int | None:
        """A signed number; None if all of its bits are set."""
        raw = self.raw(first, last)
        return None if raw == b"\xff" * len(raw) else signed(raw)


def _species(template: int, section: bytes) -> dict[str, KeyValue]:
    """What a chemical or aerosol product is of."""
    if template in _AEROSOL:
        return {**_aerosol(section, ("Size",)), "is_aerosol": 1}
    if template in _OPTICAL:
        return {**_aerosol(section, ("Size", "Wavelength")), "is_aerosol_optical": 1}
    if template in _CHEMICAL:
        return {"constituentType": int.from_bytes(section[11:13], "big"), "is_chemical": 1}
    return {}


def _aerosol(section: bytes, intervals: Sequence[str]) -> dict[str, KeyValue]:
    """The type of an aerosol, and intervals of its sizes and wavelengths."""
    octets = _Section(section, 0)
    found: dict[str, KeyValue] = {"aerosolType": int.from_bytes(octets.raw(12, 13), "big")}
    for at, what in zip((14, 25), intervals, strict=False):
        found[f"typeOf{what}Interval"] = octets.at(at)
        for which, place in (("First", at + 1), ("Second", at + 6)):
            found[f"scaleFactorOf{which}{what}"] = octets.number(place, place)
            found[f"scaledValueOf{which}{what}"] = octets.number(place + 1, place + 4)
    return found


def _surfaces(octets: _Section) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for which, at in (("First", 23), ("Second", 29)):
        found[f"typeOf{which}FixedSurface"] = octets.at(at)
        found[f"scaleFactorOf{which}FixedSurface"] = octets.number(at + 1, at + 1)
        found[f"scaledValueOf{which}FixedSurface"] = octets.number(at + 2, at + 5)
    return found


def _level(surfaces: Mapping[str, int | None], which: str) -> float | None:
    """The level of a surface; pressures in hPa, potential vorticity in 1e-9 K m2 kg-1 s-1."""
    kind = surfaces[f"typeOf{which}FixedSurface"]
    factor = surfaces[f"scaleFactorOf{which}FixedSurface"]
    if kind == _VORTICITY:
        factor = (factor or 0) - 9
    level = _scaled(factor, surfaces[f"scaledValueOf{which}FixedSurface"])
    return level / 100 if kind == _PRESSURE and level is not None else level


def _kind(template: int, octets: _Section, keys: dict[str, KeyValue]) -> str:
    if template in _DERIVED:
        return f"derived_{octets.at(35)}"
    if template in _PERCENTILES:
        return f"percentile_{octets.at(35)}"
    if template in _PROBABILITIES:
        keys["probabilityType"] = octets.at(37)
        factor, value = octets.number(38, 38), octets.number(39, 42)
        keys |= {"scaleFactorOfLowerLimit": factor, "scaledValueOfLowerLimit": value}
        lower = _scaled(factor, value)
        upper = _scaled(octets.number(43, 43), octets.number(44, 47))
        bounds = "_".join(f"{bound:g}" for bound in (lower, upper) if bound is not None)
        return f"probability_{keys['probabilityType']}_{bounds}"
    return ""


def _bands(octets: _Section, keys: dict[str, KeyValue]) -> str:
    """Series, satellite, instrument and wave number of simulated images."""
    series, number, instrument = (
        int.from_bytes(octets.raw(at, at + 1), "big") for at in (24, 26, 28)
    )
    scaled = octets.number(31, 34)
    wave = _scaled(octets.number(30, 30), scaled)
    keys |= {"satelliteSeries": series, "satelliteNumber": number, "instrumentType": instrument}
    keys["scaledValueOfCentralWaveNumber"] = scaled
    return f"satellite_{series}_{number}_{instrument}_{wave or 0:g}"


def _interval(
    octets: _Section,
    after: int,
    keys: dict[str, KeyValue],
    start: datetime,
    begins: int,
) -> dict[str, object]:
    """Step, window and kind of a statistic over time."""
    at = 35 + after
    year = int.from_bytes(octets.raw(at, at + 1), "big")
    processes = [octets.at(at + 12 + 12 * number) for number in range(octets.at(at + 7) or 1)]
    unit = octets.at(at + 14)
    length = octets.time(at + 15)
    keys["typeOfStatisticalProcessing"] = processes[-1]  # of several eccodes takes the innermost
    keys["indicatorOfUnitForTimeRange"] = unit
    keys["lengthOfTimeRange"] = length
    if len(processes) > 1:
        keys[ALL_PROCESSINGS] = ",".join(map(str, processes))
    opens = start + timedelta(seconds=begins)
    ends = _moment(year, *octets.raw(at + 2, at + 6)) if year else None
    if ends is not None and ends > opens:
        step = int((ends - start).total_seconds())
    else:  # the end is not stated, or never was computed
        step = begins + _seconds(length, unit, _UNITS, opens)
    step_type = _STEP_TYPES.get(processes[-1], f"statistic_{processes[-1]}")
    return {"step": step, "window": step - begins, "step_type": step_type}


@dataclass(frozen=True)
class Moment:
    """The time and the member of a field of a forecast.

    Attributes
    ----------
    start
        Reference time.
    begin, end
        Seconds from there to the field, or to both ends of its window; `end` is None for a field
        of an instant.
    number
        Member of the ensemble; None if it is not told.
    """

    start: datetime
    begin: int
    end: int | None = None
    number: int | None = None


def sections_at(
    identification: bytes, section: bytes, moment: Moment
) -> tuple[bytes, bytes] | None:
    """Sections 1 and 4 of the same product at another time, for another member.

    None where the template is not read or cannot say it: what has several windows, units of
    months, or times that are no whole number of units.
    """
    template = int.from_bytes(section[7:9], "big")
    shift = _SHIFTS.get(template)
    if shift is None or (template in _INTERVALS) != (moment.end is not None):
        return None
    start, changed = bytearray(identification), bytearray(section)
    try:
        start[12:19] = _written(moment.start)
        _put_time(changed, 17 + shift, moment.begin)
        if moment.end is not None:
            at = 34 + _INTERVALS[template] + shift
            if changed[at + 7] != 1:
                return None
            changed[at : at + 7] = _written(moment.start + timedelta(seconds=moment.end))
            _put_time(changed, at + 14, moment.end - moment.begin)
        if moment.number is not None:
            if template not in _ENSEMBLES:
                return None
            changed[35 + shift : 36 + shift] = moment.number.to_bytes(1, "big")
    except (KeyError, ValueError, OverflowError, IndexError):
        return None
    same_size = len(start) == len(identification) and len(changed) == len(section)
    return (bytes(start), bytes(changed)) if same_size else None


def _written(moment: datetime) -> bytes:
    return moment.year.to_bytes(2, "big") + bytes(moment.timetuple()[1:6])


def _put_time(section: bytearray, at: int, seconds: int) -> None:
    """Write a time range in the unit that stands before it."""
    count, rest = divmod(seconds, _UNITS[section[at]])
    if rest or len(section) < at + 5:
        raise ValueError("it is no whole number of units")
    section[at + 1 : at + 5] = count.to_bytes(4, "big")


# Edition 1


def product_1(section: bytes) -> Product:
    """The product of section 1."""
    if len(section) < 28:
        raise MessageError("its product is cut off")
    century, year = section[24], section[12]
    start = _moment((century - 1) * 100 + year, *section[13:17])
    unit, first, second, indicator = section[17], section[18], section[19], section[20]
    kind = section[9]
    is_layer = kind in _LAYERS_1
    octets = section[10:12]
    value = int.from_bytes(octets, "big")
    keys: dict[str, KeyValue] = {
        "table2Version": section[3],
        "indicatorOfParameter": section[8],
        "indicatorOfTypeOfLevel": kind,
        "level": value,
        "topLevel": section[10] if is_layer else value,
        "bottomLevel": section[11] if is_layer else value,
        "timeRangeIndicator": indicator,
    }
    begins, step_type, ends = None, "instant", first
    if indicator == 10:
        ends = 256 * first + second
    elif indicator in _STEP_TYPES_1:
        of_begin, of_end = _SIGNS_1.get(indicator, (1, 1))
        ends, step_type = of_end * second, _STEP_TYPES_1[indicator]
        begins = _seconds(of_begin * first, unit, _UNITS_1, start)
    elif indicator not in (0, 1):
        step_type = f"range_{indicator}"
        ends = first
    step = _seconds(ends, unit, _UNITS_1, start)
    return Product(
        edition=1,
        centre=section[4],
        subcentre=section[25],
        tables_version=section[3],
        keys=keys,
        level=float(section[10] if is_layer else signed(octets) if kind == _VORTICITY_1 else value),
        bottom=float(section[11]) if is_layer else None,
        time=int(start.timestamp()),
        step=step,
        window=None if begins is None else step - begins,
        step_type=step_type,
        number=_member_1(section),
    )


_LAYERS_1 = {101, 104, 106, 108, 110, 112, 114, 116, 120, 121, 128, 141}
"""Code table 3: layers, whose two octets are two levels."""
_VORTICITY_1 = 117
"""Potential vorticity, whose sign NCEP writes as the first bit."""
_MEMBERS = dict.fromkeys(
    (1, 2, 5, 7, 10, 13, 14, 18, 19, 26, 27, 28, 29, 30, 31, 32, 36, 37, 40, 50), 1
) | dict.fromkeys((12, 15, 16, 23), 2)
"""Octets of the member, from octet 50 on, by ECMWF's local definition."""


def _member_1(section: bytes) -> int | None:
    """The member of the ensemble, in the octets of ECMWF."""
    if _ECMWF not in (section[4], section[25]) or len(section) < 51:
        return None
    n_bytes = _MEMBERS.get(section[40], 0)
    number = int.from_bytes(section[49 : 49 + n_bytes], "big") if n_bytes else None
    is_of_none = n_bytes == 1 and number == 0 and section[50] in (0, 1)
    return None if is_of_none else number


# Names of parameters and levels


UNKNOWN = "unknown"
_OLD_TABLES = 33
"""From the next version of WMO's tables on, ECMWF gives parameters other numbers (MTG2)."""
_WMO, _ECMWF_TABLES = "wmo", "ecmf"
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
    centre = CENTRES.get(product.centre, "")
    found = _best(_both(f"grib{product.edition}", centre, "/levels", "all"), product.keys)
    return str(found[0]) if found else UNKNOWN


def _row(
    edition: str, centre: str, variant: str, place: str, keys: Mapping[str, KeyValue]
) -> Sequence[Any] | None:
    """Short name, name, units and number, out of the first tables that have the parameter."""
    for local, suffix in ((centre, variant), (_ECMWF_TABLES, variant), (_ECMWF_TABLES, ".legacy")):
        found = _best(_both(edition, local, suffix, place), keys)
        if found:
            return found
    return None


def _first(edition: str, centre: str, what: str, place: str, keys: Mapping[str, KeyValue]) -> str:
    for local in (centre, _ECMWF_TABLES):
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
