"""Factors between units that files use."""

from __future__ import annotations

import pytest

from gridref.api.units import converter, with_converter

CONVERTED = [
    ("degC", "K", (1.0, 273.15)),
    ("K", "degC", (1.0, -273.15)),
    ("degrees_Celsius", "degC", (1.0, 0.0)),
    ("degF", "degC", (5 / 9, -160 / 9)),
    ("hPa", "Pa", (100.0, 0.0)),
    ("millibar", "hPa", (1.0, 0.0)),
    ("kg m-2 s-1", "kg/m2/s", (1.0, 0.0)),
    ("kg m-2 s-1", "g m-2 day-1", (86_400_000.0, 0.0)),
    ("m s**-1", "m s-1", (1.0, 0.0)),
    ("m s-1", "km h-1", (3.6, 0.0)),
    ("percent", "1", (0.01, 0.0)),
    ("1", "%", (100.0, 0.0)),
    ("g kg-1", "1", (0.001, 0.0)),
    ("1e-3", "kg kg-1", (0.001, 0.0)),
    ("degC m-1", "K m-1", (1.0, 0.0)),
    ("degF m-1", "K m-1", (5 / 9, 0.0)),
    ("ms", "s", (0.001, 0.0)),
    ("days", "hours", (24.0, 0.0)),
    ("degrees_north", "degree", (1.0, 0.0)),
]
NOT_CONVERTED = [
    ("K", "Pa"), ("K", "K2"), ("K", "None"), ("", "1"), ("kg m-2 s-1", "mm s-1"),
    ("gpm", "m"), ("psu", "1"), ("mb", "Pa"), ("year", "day"), ("dBZ", "1"), ("0 m", "m"),
    ("Pas", "Pa"), ("hPas", "hPa"), ("hs", "h"), ("m 2", "m"), ("mdegC", "K"), ("0.1 degC", "K"),
    ("days since 2000-01-01", "days"), ("m /", "m"), ("(K)", "K"), ("10^-3", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "target", "expected"), CONVERTED)
def test_known_conversions(unit: str, target: str, expected: tuple[float, float]) -> None:
    assert converter()(unit, target) == expected


@pytest.mark.parametrize(("unit", "target"), NOT_CONVERTED)
def test_what_is_not_sure_is_not_converted(unit: str, target: str) -> None:
    assert converter()(unit, target) is None


def test_the_option_may_be_a_function() -> None:
    def own(unit: str, target: str) -> None:
        return None

    assert with_converter({"convert_units": own}) == {"convert_units": own}
    assert with_converter({"convert_units": False}) == {"convert_units": None}
    assert with_converter({}) == {}
