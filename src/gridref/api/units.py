"""Convert between units of the CF conventions (3.1 "Units"), with exact factors.

The names are those of UDUNITS that files use, and no others: pint's own registry gives some of
them another meaning (``gpm``, ``year``, ``a``). Units that are unknown, or that mean different
things to different tools (``mb``, ``psu``, months, logarithmic units), are not converted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from gridref.combine.options import ConvertUnits
from gridref.extras import needed_for

_PREFIXES = (
    "tera- = 1e12 = T-", "giga- = 1e9 = G-", "mega- = 1e6 = M-", "kilo- = 1e3 = k-",
    "hecto- = 100 = h-", "deca- = 10 = da-", "deci- = 1e-1 = d-", "centi- = 1e-2 = c-",
    "milli- = 1e-3 = m-", "micro- = 1e-6 = u- = µ-", "nano- = 1e-9 = n-", "pico- = 1e-12 = p-",
)  # fmt: skip
_UNITS = (
    "meter = [length] = m = metre",
    "second = [time] = s = sec",
    "gram = [mass] = g",
    "ampere = [current] = A",
    "mole = [substance] = mol",
    "candela = [luminosity] = cd",
    "radian = [angle] = rad",
    "kelvin = [temperature]; offset: 0 = K = Kelvin = degK = deg_K = degree_K = degrees_K",
    (
        "celsius = kelvin; offset: 273.15 = degC = Celsius = deg_C = degree_C = degrees_C"
        " = degree_Celsius = degrees_Celsius = degree_celsius = degrees_celsius"
    ),
    (
        "fahrenheit = 5 / 9 * kelvin; offset: 233.15 + 200 / 9 = degF = Fahrenheit = deg_F"
        " = degree_F = degrees_F = degree_Fahrenheit = degrees_Fahrenheit"
    ),
    "minute = 60 * second = min",
    "hour = 3600 * second = h = hr",
    "day = 86400 * second = d",
    "week = 604800 * second",
    "hertz = 1 / second = Hz",
    "newton = kilogram * meter / second ** 2 = N",
    "pascal = newton / meter ** 2 = Pa",
    "bar = 100000 * pascal",
    "atmosphere = 101325 * pascal = atm",
    "joule = newton * meter = J",
    "watt = joule / second = W",
    "coulomb = ampere * second = C",
    "volt = watt / ampere = V",
    "ohm = volt / ampere",
    "siemens = ampere / volt = S",
    "liter = 0.001 * meter ** 3 = L = litre",
    "tonne = 1000000 * gram",
    "hectare = 10000 * meter ** 2",
    "inch = 0.0254 * meter",
    "foot = 0.3048 * meter = ft = feet",
    "mile = 1609.344 * meter",
    "nautical_mile = 1852 * meter",
    "knot = 1852 / 3600 * meter / second",
    (
        "degree = 3.14159265358979323846264338327950288 / 180 * radian = deg"
        " = degree_north = degrees_north = degree_N = degrees_N = degreeN = degreesN"
        " = degree_east = degrees_east = degree_E = degrees_E = degreeE = degreesE"
        " = degree_true = degrees_true"
    ),
    "percent = 0.01",
    "ppm = 1e-6",
    "ppb = 1e-9",
)
_NAMES = frozenset(alias.strip() for line in _UNITS for alias in line.replace(";", "=").split("="))
"""Every name as it is written above."""
_SECONDS = frozenset({"ks", "ms", "us", "µs", "ns", "ps"})
"""Symbols that end like a plural."""
_UNPREFIXED = frozenset({"celsius", "fahrenheit", "percent", "ppm", "ppb"})

_TOKEN = re.compile(
    r"\s*(?:(?P<per>/|per\b)|(?P<times>[.·*](?!\*))"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-zµ°_%]+)(?:(?:\^|\*\*)?(?P<power>[+-]?\d+))?)"
)
_PLURAL = re.compile(r"[A-Za-z_]*[a-z]{3,}s")


def converter() -> ConvertUnits:
    """A function of two units that returns the factor and offset from one to the other.

    Both are exact rational numbers, rounded once to float64. The function returns None for units
    that it does not know, and for those that do not measure the same.

    Raises
    ------
    MissingPackageError
        If pint is not installed.
    """
    registry = _registry()

    @lru_cache(maxsize=1024)
    def convert(unit: str, target: str) -> tuple[float, float] | None:
        pair = _exact(registry, unit, target)
        return None if pair is None else (float(pair[0]), float(pair[1]))

    return convert


def with_converter(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for combining in which ``convert_units=True`` has become a converter, False none."""
    asked = options.get("convert_units")
    if asked is True:
        return {**options, "convert_units": converter()}
    return {**options, "convert_units": None} if asked is False else dict(options)


@lru_cache(maxsize=1)
def _registry() -> Any:
    with needed_for("converting units with no function of yours"):
        from pint import UnitRegistry
    registry: Any = UnitRegistry(None, non_int_type=Fraction)
    for definition in (*_PREFIXES, *_UNITS):
        registry.define(definition)
    return registry


def _exact(registry: Any, unit: str, target: str) -> tuple[Fraction, Fraction] | None:
    """Factor and offset as rational numbers; None where units cannot be converted."""
    from pint.errors import DimensionalityError

    one, other = _parsed(registry, unit), _parsed(registry, target)
    if one is None or other is None:
        return None
    (scale, have), (wanted_scale, want) = one, other
    try:
        zero, unity = (registry.Quantity(Fraction(n), have).to(want).magnitude for n in (0, 1))
    except DimensionalityError:
        return None
    if zero and (scale != 1 or wanted_scale != 1):
        return None  # tools differ on what "0.1 degC" counts from
    return Fraction(unity - zero) * scale / wanted_scale, Fraction(zero)


def _parsed(registry: Any, text: str) -> tuple[Fraction, Any] | None:
    """Scale and unit that a text of CF units means; None where it is not understood."""
    factors = _factors(text.strip())
    if factors is None:
        return None
    scale = Fraction(1)
    powers: dict[str, int] = {}
    for word, power in factors:
        if isinstance(word, Fraction):
            scale *= word
            continue
        name = _unit_name(registry, word)
        if name is None:
            return None
        powers[name] = powers.get(name, 0) + power
    if not scale:
        return None
    if list(powers.values()) == [1]:
        return scale, registry.Unit(next(iter(powers)))
    # In a product, a degree Celsius is a difference of temperatures.
    differences = {"celsius": "kelvin", "fahrenheit": "delta_fahrenheit"}
    unit = registry.Unit("dimensionless")
    for name, power in powers.items():
        unit *= registry.Unit(differences.get(name, name)) ** power
    return scale, unit


def _factors(text: str) -> list[tuple[Fraction | str, int]] | None:
    """The numbers and names of a product with their exponents; None for anything else."""
    factors: list[tuple[Fraction | str, int]] = []
    sign, position, expected = 1, 0, True
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return None
        position = match.end()
        if match["per"] or match["times"]:
            if expected:
                return None
            sign, expected = (-1 if match["per"] else 1), True
            continue
        if match["number"] and factors:
            return None  # "m 2": a factor, or an exponent that lost its sign
        word = Fraction(match["number"]) if match["number"] else match["name"]
        factors.append((word, sign * int(match["power"] or 1)))
        sign, expected = 1, False
    return None if expected else factors


def _unit_name(registry: Any, word: str) -> str | None:
    """The one name that a word stands for in the registry; None where it is none, or not sure."""
    word = {"%": "percent", "°": "degree", "°C": "celsius", "°F": "fahrenheit"}.get(word, word)
    known = word in _NAMES or word in _SECONDS or _PLURAL.fullmatch(word)
    if word.endswith("s") and not known:
        return None  # no plural of symbols: "Pas" may be a product
    candidates = {
        (prefix, name)
        for prefix, name, _ in registry.parse_unit_name(word)
        if word not in _NAMES or not prefix
    }
    if len(candidates) != 1:
        return None
    ((prefix, name),) = candidates
    return None if prefix and name in _UNPREFIXED else f"{prefix}{name}"
