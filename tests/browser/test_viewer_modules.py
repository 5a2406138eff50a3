"""What the viewer computes and decodes, run by Node: equal to what other programs compute."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Fletcher32, Shuffle, Zstd

from gridref.faces.web.meaning import Meaning
from gridref.model.array import VirtualArray
from tests.programs import WEB, npm_package, program


def computed(tmp_path: Path, imports: str, expression: str, given: Any) -> Any:
    """What an expression of the viewer's modules makes of each value that is given."""
    node = program("node")
    esbuild = npm_package("esbuild") / "bin" / "esbuild"
    script = tmp_path / "script.js"
    script.write_text(
        f'import {{ readFileSync }} from "node:fs";\n{imports}\n'
        f'const given = JSON.parse(readFileSync(0, "utf8"));\n'
        f"process.stdout.write(JSON.stringify(given.map(({expression}))));"
    )
    built = tmp_path / "built.mjs"
    command = [str(esbuild), str(script), "--bundle", "--platform=node", "--format=esm"]
    command += [f"--alias:viewer={WEB / 'viewer'}", f"--outfile={built}", "--log-level=error"]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [node, built], check=False, input=json.dumps(given), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CALENDARS = (
    "standard",
    "gregorian",
    "proleptic_gregorian",
    "julian",
    "noleap",
    "365_day",
    "all_leap",
    "366_day",
    "360_day",
)


def test_times_of_all_calendars_are_those_of_cftime(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    cases, expected = [], []
    for calendar in CALENDARS:
        for units in (
            "days since 1850-01-01",
            "days since 0001-01-01 00:00:00",
            "hours since 1900-1-1 6:30",
            "seconds since 1970-01-01T00:00:00Z",
            "minutes since 1582-10-01 00:00:00 +01:00",
            "microsecs since -0044-03-15",
        ):
            unit = units.split()[0]
            days = random.integers(-300, 700_000, 40) + random.choice([0, 0.25, 0.5], 40)
            per_day = {"days": 1, "hours": 24, "minutes": 1440, "seconds": 86400}.get(unit, 864e8)
            for value in (days * per_day).tolist():
                date = cftime.num2date(value, units, calendar)
                cases.append([units, calendar, value])
                parts = [date.year, date.month, date.day]
                expected.append([*parts, date.hour * 3600 + date.minute * 60 + date.second])
    parts = "([units, calendar, value]) => TimeAxis.of(units, calendar).parts(value)"
    found = computed(tmp_path, 'import { TimeAxis } from "viewer/calendars.js";', parts, cases)
    wrong = [(c, f, e) for c, f, e in zip(cases, found, expected, strict=True) if f != e]
    assert not wrong, wrong[:5]
    assert {each[0] < 0 for each in expected} == {True, False}


def test_times_that_cftime_does_not_know(tmp_path: Path) -> None:
    imports = 'import { TimeAxis } from "viewer/calendars.js";'
    cases = [
        ["ns since 1970-01-01", "proleptic_gregorian", 17e17],
        ["days since 0-1-1", "julian", 1],
    ]
    words = "([units, calendar, value]) => TimeAxis.of(units, calendar)?.words(value) ?? null"
    assert computed(tmp_path, imports, words, cases) == ["2023-11-14 22:13:20", None]


@pytest.mark.parametrize(
    ("dtype", "attrs", "stored"),
    [
        (
            "int8",
            {"_Unsigned": "true", "_FillValue": -1, "valid_max": -3},
            [0, 5, -1, -2, -3, -128],
        ),
        ("uint8", {"_Unsigned": "false", "_FillValue": 255, "valid_min": 250}, [0, 255, 250, 128]),
        ("int8", {"_Unsigned": "True", "valid_max": 4}, [0, 5, -1]),
        ("int64", {"_Unsigned": "true"}, [5, -1]),
        (
            "float32",
            {"valid_min": 0.1, "valid_max": 0.3, "missing_value": 0.2},
            [0.1, 0.2, 0.3, 0.4],
        ),
        ("int16", {"valid_range": [1.0, 3.0]}, [0, 1, 3, 4]),
    ],
)
def test_stored_numbers_mean_what_the_server_says(
    tmp_path: Path, dtype: str, attrs: dict[str, Any], stored: list[float]
) -> None:
    array = VirtualArray.from_numpy(np.array(stored, dtype), ("x",), attrs)
    values = np.array(stored, dtype)
    expected = Meaning.of(array).unpacked(values).tolist()
    given = [[attrs, dtype, value] for value in values.tolist()]
    made = "([attrs, dtype, stored]) => new Meaning(attrs, dtype).of(stored)"  # NaN is null in JSON
    found = computed(tmp_path, 'import { Meaning } from "viewer/meaning.js";', made, given)
    np.testing.assert_array_equal(np.array(found, float), expected)


def test_words_have_the_digits_of_what_is_stored(tmp_path: Path) -> None:
    """Floats that are scaled have more than their factor has, and flags the sign of their type."""
    given = [
        [{"scale_factor": 100, "units": "%"}, "float32", 0.4567],
        [{"scale_factor": 0.01}, "int16", 1234],
        [{"_Unsigned": "true", "flag_values": [0, -1], "flag_meanings": "no yes"}, "int8", -1],
        [{"units": "1"}, "int16", 7],
    ]
    made = "([attrs, dtype, stored]) => new Meaning(attrs, dtype).wordsOf(stored)"
    found = computed(tmp_path, 'import { Meaning } from "viewer/meaning.js";', made, given)
    assert found == ["45.67%", "12.34", "255 (yes)", "7"]


def test_ticks_of_times_are_round_and_few(tmp_path: Path) -> None:
    spans = [0.002, 0.05, 0.4, 1, 3, 9, 40, 200, 800, 4_000, 40_000, 400_000]
    given = [[calendar, 1_000.3, 1_000.3 + span] for calendar in CALENDARS for span in spans]
    ticks = (
        '([calendar, low, high]) => TimeAxis.of("days since 1900-01-01", calendar)'
        ".ticks(low, high, 8)"
    )
    found = computed(tmp_path, 'import { TimeAxis } from "viewer/calendars.js";', ticks, given)
    for (calendar, low, high), shown in zip(given, found, strict=True):
        assert 2 <= len(shown) <= 10, (calendar, high - low, shown)
        values = [value for value, _ in shown]
        assert all(low <= value <= high for value in values)
        assert values == sorted(set(values))
        for value, words in shown:
            date = cftime.num2date(value, "days since 1900-01-01", calendar)
            assert f"{date:%Y-%m-%d %H:%M:%S}".find(words) >= 0, (calendar, words, date)


def test_numbers_are_the_shortest_of_their_type(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    cases: list[list[Any]] = []
    for dtype in ("float16", "float32"):
        some = (random.normal(size=300) * 10.0 ** random.integers(-3, 4, 300)).astype(dtype)
        tenths = (np.arange(-200, 200) / 10).astype(dtype)
        cases += [[float(value), dtype] for value in np.concatenate([some, tenths])]
    expression = "([value, dtype]) => shortest(value, dtype)"
    found = computed(tmp_path, 'import { shortest } from "viewer/numbers.js";', expression, cases)
    for (value, dtype), words in zip(cases, found, strict=True):
        expected = np.format_float_positional(np.dtype(dtype).type(value), unique=True, trim="-")
        assert np.dtype(dtype).type(words) == np.dtype(dtype).type(value)
        assert len(words) <= len(expected), (dtype, expected, words)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("n", [1, 2, 7, 1_000])
def test_limits_are_percentiles(tmp_path: Path, n: int) -> None:
    values = np.random.default_rng(n).normal(3, 2, n)
    values[1::5] = np.nan
    finite = values[np.isfinite(values)]
    given = [None if np.isnan(value) else value for value in values.tolist()]
    imports = 'import { beyond, limitsOf } from "viewer/colours/limits.js";'
    expression = """(values) => {
        const known = Float64Array.from(values, (value) => value ?? NaN);
        const [low, high] = limitsOf(known);
        return [low, high, ...limitsOf(known, { centre: 1 }), beyond(known, low, high)];
    }"""
    ((low, high, least, most, told),) = computed(tmp_path, imports, expression, [given])
    expected = np.percentile(finite, [2, 98])
    np.testing.assert_allclose([low, high], expected, rtol=1e-14)
    far = max(1 - low, high - 1)
    assert [least, most] == ([1 - far, 1 + far] if far > 0 else [0, 2])
    assert told["n"] == finite.size
    assert told["below"] == (finite < low).sum()
    assert told["above"] == (finite > high).sum()
    assert [told["least"], told["greatest"]] == [finite.min(), finite.max()]


def test_colour_scales_have_the_colours_of_their_names(tmp_path: Path) -> None:
    from matplotlib import colormaps

    imports = 'import { coloursOf, NAMES } from "viewer/colours/scales.js";'
    (names,) = computed(tmp_path, imports, "() => NAMES", [0])
    assert len(names) >= 24
    found = computed(tmp_path, imports, "(name) => coloursOf(name)", names)
    shown = dict(zip(names, np.array(found), strict=True))
    assert all(each.shape == (256, 3) for each in shown.values())
    for name, off in {
        **dict.fromkeys(("viridis", "magma", "inferno", "plasma", "gray"), 1),
        # D3 draws these by polynomials and splines of its own.
        **dict.fromkeys(("cividis", "turbo", "Blues", "Greens", "Oranges", "YlGnBu"), 35),
        **dict.fromkeys(("RdBu", "RdYlBu", "PuOr", "BrBG", "PiYG", "Spectral"), 20),
    }.items():
        expected = 255 * colormaps[name](np.arange(256))[:, :3]
        assert np.abs(shown[name] - expected).max() <= off, name
    (turned,) = computed(tmp_path, imports, "(name) => coloursOf(name, true)", ["magma"])
    np.testing.assert_array_equal(turned, shown["magma"][::-1])


SUITED = [
    ({"standard_name": "air_temperature"}, "thermal"),
    ({"long_name": "Temperature anomaly", "units": "K"}, "balance"),
    ({"standard_name": "eastward_wind"}, "balance"),
    ({"standard_name": "precipitation_flux"}, "rain"),
    ({"standard_name": "sea_water_salinity"}, "haline"),
    ({"standard_name": "sea_ice_area_fraction"}, "ice"),
    ({"standard_name": "wind_from_direction", "units": "degree"}, "phase"),
    ({"units": "dBZ"}, "turbo"),
    ({"units": "degC"}, "thermal"),
    ({"standard_name": "surface_altitude"}, "topo"),
    ({}, "viridis"),
]


def test_colours_suit_what_attributes_say(tmp_path: Path) -> None:
    imports = 'import { suited } from "viewer/colours/choosing.js";'
    expression = (
        '(attributes) => suited({ attributes, name: "a", isCount: false, range: [-1, 1] }).scale'
    )
    found = computed(tmp_path, imports, expression, [attributes for attributes, _ in SUITED])
    assert found == [scale for _, scale in SUITED]


PLACES = [
    "+proj=utm +zone=33 +datum=WGS84",
    "+proj=lcc +lat_1=30 +lat_2=60 +lat_0=38.5 +lon_0=-97.5 +R=6371229",
    "+proj=laea +lat_0=52 +lon_0=10 +x_0=4321000 +y_0=3210000 +ellps=GRS80",
    "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +ellps=WGS84",
    "+proj=sinu +lon_0=0 +R=6371007.181",
    "+proj=aea +lat_0=23 +lon_0=-96 +lat_1=29.5 +lat_2=45.5 +ellps=GRS80",
    "+proj=geos +h=35786023 +lon_0=-75 +sweep=x +ellps=GRS80",
    "+proj=geos +h=35785831 +lon_0=0 +sweep=y +ellps=WGS84",
    "+proj=merc +a=6378137 +b=6378137 +units=m",
]


@pytest.mark.long(but=1)
@pytest.mark.filterwarnings("ignore:You will likely lose")
@pytest.mark.parametrize("text", PLACES)
def test_projections_are_those_of_proj(tmp_path: Path, text: str) -> None:
    from pyproj import CRS, Proj

    told = CRS.from_proj4(text).to_proj4()  # as pages say it
    projection = Proj(text)
    middle = projection(0, 0, inverse=True)[0] if "utm" not in text else 15
    north = 75 if "stere" in text else 40
    places = [(middle + x, north + y) for x in (-3, 0, 4) for y in (-2, 0, 3)]
    given = [projection(*place) for place in places]
    imports = 'import { projected } from "viewer/map/earth.js";'
    expression = f"([x, y]) => projected({json.dumps(told)}, [1, 1])(x, y)"
    found = computed(tmp_path, imports, expression, given)
    expected = [projection(x, y, inverse=True) for x, y in given]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(expected, places, atol=1e-5)


def test_a_rotated_pole_is_that_of_proj(tmp_path: Path) -> None:
    from pyproj import CRS, Transformer

    pole = [39.25, -162.0, 0.0]
    crs = CRS.from_cf(
        {
            "grid_mapping_name": "rotated_latitude_longitude",
            "grid_north_pole_latitude": pole[0],
            "grid_north_pole_longitude": pole[1],
            "north_pole_grid_longitude": pole[2],
            "earth_radius": 6371229.0,
        }
    )
    back = Transformer.from_crs(crs, "+proj=longlat +R=6371229", always_xy=True)
    given = [[float(x), float(y)] for x in (-40, -3, 0, 20, 100) for y in (-50, 0, 10, 80)]
    imports = 'import { rotated } from "viewer/map/earth.js";'
    expression = f"([x, y]) => rotated({pole})(x, y)"
    found = computed(tmp_path, imports, expression, given)
    np.testing.assert_allclose(found, [back.transform(x, y) for x, y in given], atol=1e-6)


def test_places_between_elements_are_in_space(tmp_path: Path) -> None:
    latitudes, longitudes = np.meshgrid([80.0, 85, 89], [170.0, 178, -174, -166], indexing="ij")
    given = [[longitudes.ravel().tolist(), latitudes.ravel().tolist()]]
    imports = 'import { everywhere } from "viewer/map/earth.js";'
    expression = """([longitudes, latitudes]) => {
        const at = everywhere(longitudes, latitudes, 3, 4);
        const centres = longitudes.map((_, i) => at((i % 4) + 0.5, Math.floor(i / 4) + 0.5));
        return [centres, at(2, 1.5), at(0, 0.5)];
    }"""
    ((centres, date_line, before),) = computed(tmp_path, imports, expression, given)
    expected = np.stack([longitudes.ravel(), latitudes.ravel()], -1)
    np.testing.assert_allclose(centres, expected, atol=1e-9)
    assert abs(date_line[0]) == pytest.approx(178, abs=0.01)  # half way from 178 to -174 is -178
    assert date_line[1] == pytest.approx(85, abs=0.1)
    assert before[0] == pytest.approx(166, abs=0.1)


SCRIPT = """
import { readFileSync } from "node:fs";
import "./viewer/codecs/index.js";
import { registry } from "zarrita";

const found = [];
for (const [name, config, data] of JSON.parse(readFileSync(0, "utf8"))) {
  const codec = (await registry.get(name)()).fromConfig(config, { shape: [1] });
  const told = async () => Buffer.from(await codec.decode(new Uint8Array(Buffer.from(data, "base64")))).toString("base64");
  found.push(await told().catch((error) => `! ${error.message}`));
}
process.stdout.write(JSON.stringify(found));
"""  # noqa: E501


def decoded(cases: list[tuple[str, dict[str, Any], bytes]]) -> list[bytes | str]:
    """What the viewer makes of each codec's bytes; what is wrong with them in words."""
    node = program("node")
    npm_package("zarrita")
    npm_package("fzstd")
    told = json.dumps([(n, c, base64.b64encode(data).decode()) for n, c, data in cases])
    command = [node, "--input-type=module", "-e", SCRIPT]
    done = subprocess.run(command, cwd=WEB, input=told, capture_output=True, text=True, check=True)
    return [
        each if each.startswith("! ") else base64.b64decode(each)
        for each in json.loads(done.stdout)
    ]


def buffers() -> Iterator[tuple[int, bytes]]:
    """Sizes of elements and bytes: even and odd counts, runs, noise, far repeats, many blocks."""
    random = np.random.default_rng(4)
    for size in (1, 2, 3, 4, 8, 16, 17):
        for n in (1, 7, 8, 33, 1000, 9_001):
            noise = random.integers(0, 256, n * size, "u1")
            runs = np.repeat(noise[:: n // 5 + 1], n * size)[: n * size]
            yield size, noise.tobytes()
            yield size, runs.tobytes()
            yield size, (np.arange(n * size) // size * 37 % 251).astype("u1").tobytes()
    far = random.integers(0, 256, 60_000, "u1").tobytes()
    yield 4, far + far[:50_000] + bytes(9_000) + far


def test_every_buffer_comes_back() -> None:
    cases, expected = [], []
    for number, (size, data) in enumerate(buffers()):
        cname = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")[number % 5]
        for shuffle in (0, 1, 2):
            blosc = Blosc(cname, clevel=(1, 5, 9)[number % 3], shuffle=shuffle, typesize=size)
            cases.append(("blosc", {}, blosc.encode(data)))
        cases.append(
            ("numcodecs.shuffle", {"elementsize": size}, bytes(Shuffle(size).encode(data)))
        )
        cases.append(("numcodecs.lz4", {}, LZ4().encode(data)))
        cases.append(("zstd", {}, Zstd(3).encode(data)))
        cases.append(("numcodecs.fletcher32", {}, bytes(Fletcher32().encode(data))))
        expected += [data] * 7
    found = decoded(cases)
    wrong = [n for n, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b]
    assert not wrong, [(cases[n][0], len(expected[n]), found[n][:60]) for n in wrong[:9]]


DATA = (np.arange(9_000) // 7).astype("u2").tobytes()
ENCODERS = {
    "blosc": Blosc("lz4"),
    "numcodecs.lz4": LZ4(),
    "zstd": Zstd(),
    "numcodecs.fletcher32": Fletcher32(),
}


@pytest.fixture(scope="module")
def of_cut_off() -> dict[str, list[bytes | str]]:
    """What is made of bytes that end too early, by codec: one process of Node for all."""
    cases = [
        (name, {}, whole[:n])
        for name, encoder in ENCODERS.items()
        for whole in [bytes(encoder.encode(DATA))]
        for n in (len(whole) - 1, len(whole) // 2, 20)
    ]
    found = decoded(cases)
    return {name: found[3 * i : 3 * i + 3] for i, name in enumerate(ENCODERS)}


@pytest.mark.long
@pytest.mark.parametrize("codec", ENCODERS)
def test_what_is_cut_off_is_no_value(codec: str, of_cut_off: dict[str, list[bytes | str]]) -> None:
    found = of_cut_off[codec]
    assert len(found) == 3
    assert all(isinstance(each, str) or len(each) != len(DATA) for each in found), found
