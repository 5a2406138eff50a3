"""Index files beside GRIB files on a server: few requests, and never another label."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gridref
from gridref.api.readable import Sources, readable
from gridref.errors import DecodeError, GridrefError, NotRepresentableError
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.formats.grib.arrays import group_of_fields
from gridref.formats.grib.index_files import UnfitIndexError, listed_fields, read_index
from gridref.formats.options import ScanOptions
from gridref.io import Reads, open_for_scan, working
from gridref.learned import FORMS
from gridref.model.array import VirtualGroup
from tests.grib_files import field, write_grib
from tests.grib_index import idx, index
from tests.http_server import Site, serving
from tests.shared_data import shared_files

LEVELS = (1000, 850, 500, 250)
UPPER = ("t", "u", "v", "q")


@pytest.fixture(autouse=True)
def nothing_learned() -> None:
    FORMS.clear()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files of a series."""
    folder = tmp_path_factory.mktemp("series")
    return [forecast(folder / f"f{step:03}.grib2", step) for step in (3, 6)]


def forecast(path: Path, step: int, **begin: Any) -> Path:
    """A file of 21 messages: levels, 2 m, and windows of precipitation. All have one size."""
    begin = {"dataDate": 20240301, "dataTime": 600, **begin}
    grid = {"n_rows": 64, "n_columns": 64, **begin}
    fields = [
        {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": level, "step": step}
        for name in UPPER
        for level in LEVELS
    ]
    fields += [{"shortName": name, "step": step} for name in ("2t", "sp", "10u")]
    fields += [{"shortName": "tp", "stepRange": f"{at}-{step}"} for at in (0, step - 1)]
    return write_grib(
        path,
        *(field(seed=97 * step + n, **grid, **keys) for n, keys in enumerate(fields)),
    )


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Site()) as site:
        yield site


def served(site: Site, *files: Path, lists: Callable[[Path], str] | None = idx) -> None:
    """Let a server have some files, and what lists them."""
    held = {f"/{file.name}": file.read_bytes() for file in files}
    if lists is not None:
        for file in files:
            name = file.name + ".idx" if lists is idx else file.stem + ".index"
            held[f"/{name}"] = lists(file).encode()
    site.files, site.requests = held, []


def fields_in(group: VirtualGroup) -> dict[str, Any]:
    """Arrays of fields by path."""
    return {path: array for path, array in group.all_arrays().items() if "GRIB_name" in array.attrs}


@cache
def in_file(path: Path) -> dict[tuple[Any, ...], Any]:
    """The values of each field of a file by its path and labels; others compare with eccodes."""
    return {labels: read() for labels, read in by_label(gridref.scan(path)).items()}


def by_label(group: VirtualGroup) -> dict[tuple[Any, ...], Any]:
    """Each field of a group by its path and labels: a function that reads it."""
    found = {}
    for path, array in fields_in(group).items():
        above = group[path.rpartition("/")[0]].arrays
        counts = array.shape[:-2]
        for at in np.ndindex(counts):
            labels = [above[dim][...][n] for dim, n in zip(array.dims, at, strict=False)]
            found[path, *map(float, labels)] = lambda array=array, at=at: array[at]
    return found


def assert_nothing_wrong(group: VirtualGroup, path: Path) -> tuple[int, int]:
    """Every field that can be read is the file's with these labels; returns equal and refused."""
    expected = in_file(path)
    n_equal = n_refused = 0
    for labels, read in by_label(group).items():
        try:
            values = read()
        except GridrefError:
            n_refused += 1
            continue
        if not np.isnan(values).all():
            assert labels in expected, labels
            assert np.array_equal(values, expected[labels]), labels
            n_equal += 1
    return n_equal, n_refused


# ---- index files that are right -----------------------------------------------------------


@pytest.mark.parametrize("lists", [idx, index])
def test_a_further_file_takes_three_requests(
    site: Site, files: list[Path], lists: Callable[[Path], str]
) -> None:
    served(site, *files, lists=lists)
    first, second = (gridref.scan(f"{site.url}/{file.name}") for file in files)
    asked = site.requests[first.report.n_requests :]
    # beginning, index file, last message; windows of ECMWF, which do not say where they begin
    assert second.report.n_requests == len(asked) == 3
    for group, path in ((first, files[0]), (second, files[1])):
        assert fields_in(group).keys() == fields_in(gridref.scan(path)).keys()
        n_equal, n_refused = assert_nothing_wrong(group, path)
        assert (n_equal, n_refused) == (len(in_file(path)), 0)
    array = fields_in(second)["isobaricInhPa/t"]
    assert array.has_filter_masks  # claims, which were compared with the messages above


def test_members_of_ensembles(site: Site, tmp_path: Path) -> None:
    def members(step: int) -> Path:
        keys = {
            "productDefinitionTemplateNumber": 1,
            "shortName": "2t",
            "numberOfForecastsInEnsemble": 50,
        }
        return write_grib(
            tmp_path / f"m{step}.grib2",
            *(
                field(64, 64, step + n, **keys, perturbationNumber=n, step=step)
                for n in range(1, 21)
            ),
        )

    files = [members(step) for step in (3, 6)]
    served(site, *files, lists=index)
    gridref.scan(f"{site.url}/m3.grib2")
    group = gridref.scan(f"{site.url}/m6.grib2")
    assert group.report.n_requests == 3
    assert assert_nothing_wrong(group, files[1]) == (20, 0)


def test_a_day_on_a_server(site: Site, tmp_path: Path) -> None:
    files = [forecast(tmp_path / f"f{step:03}.grib2", step) for step in range(2, 6)]
    served(site, *files)
    gridref.build([f"{site.url}/{file.name}" for file in files], tmp_path / "cube.gridref")
    n_requests = len(site.requests)
    cube = gridref.open_catalog(tmp_path / "cube.gridref")
    steps = cube["isobaricInhPa/step"][...].tolist()
    for file in files:
        for labels, expected in in_file(file).items():
            at = cube[labels[0]][0, steps.index(labels[2])]
            if at.ndim == 3:
                levels = cube["isobaricInhPa/isobaricInhPa"][...].tolist()
                at = at[levels.index(labels[3])]
            assert np.array_equal(at, expected)
    assert n_requests <= 3 * len(files) + 4  # the first file is read by its headers


def test_fields_that_share_a_message_are_read_by_their_headers(site: Site, tmp_path: Path) -> None:
    def winds(step: int) -> Path:
        pair = [field(64, 64, step, shortName=name, step=step) for name in ("10u", "10v")]
        pair[0]["multi"] = 2
        others = [field(64, 64, step + n, shortName="t", level=100 + n) for n in range(20)]
        return write_grib(tmp_path / f"w{step}.grib2", *others, *pair, *others[:1])

    files = [winds(step) for step in (3, 6)]
    served(site, *files)
    for file in files:
        group = gridref.scan(f"{site.url}/{file.name}")
        assert assert_nothing_wrong(group, file) == (len(in_file(file)), 0)


def test_folders_without_index_files_are_asked_once(site: Site, files: list[Path]) -> None:
    served(site, *files, lists=None)
    for file in [*files, *files]:
        gridref.scan(f"{site.url}/{file.name}")
    extra = [path for _, path, _ in site.requests if not path.endswith(".grib2")]
    assert extra == ["/f003.grib2.idx", "/f003.index"]


def test_offsets_only(site: Site, files: list[Path]) -> None:
    served(site, *files)
    gridref.scan(f"{site.url}/f003.grib2")
    claimed = gridref.scan(f"{site.url}/f006.grib2")
    read = gridref.scan(f"{site.url}/f006.grib2", index_files="offsets")
    name = "isobaricInhPa/t"
    with pytest.raises(NotRepresentableError, match="index_files='offsets'"):
        to_kerchunk(claimed, inline_limit=0)
    assert not read[name].has_filter_masks
    assert assert_nothing_wrong(read, files[1])[1] == 0


@pytest.mark.long(but=4)
@pytest.mark.parametrize("path", shared_files("formats/grib/*.idx"))
def test_real_index_files_are_understood(path: Path) -> None:
    content = path.read_bytes()
    offsets = [int(line.split(b":")[1]) for line in content.splitlines()]
    entries = read_index(content, offsets[-1] + 1)
    assert [entry.offset for entry in entries] == sorted(set(offsets))
    assert all(entry.moment for entry in entries if offsets.count(entry.offset) == 1)


# ---- index files that are wrong -----------------------------------------------------------


def swap_words(text: str) -> str:
    """Two lines tell the other one's field."""
    lines = text.splitlines()
    (one, other) = (re.fullmatch(r"(\d+:\d+:)(.*)", lines[n]) for n in (5, 9))
    assert one is not None
    assert other is not None
    lines[5], lines[9] = one[1] + other[2], other[1] + one[2]
    return "\n".join(lines)


WRONG: dict[str, Callable[[str], str]] = {
    "swapped": swap_words,
    "another step": lambda text: text.replace("6 hour", "7 hour"),
    "another day": lambda text: text.replace("d=20240301", "d=20240302"),
    "one of another day": lambda text: text.replace("d=2024030106:V:850", "d=2024030206:V:850"),
    "cut off": lambda text: "".join(text.splitlines(True)[:12]),
    "cut off in a line": lambda text: text[:300],
    "without a line": lambda text: "".join(text.splitlines(True)[:7] + text.splitlines(True)[8:]),
    "without the first": lambda text: "".join(text.splitlines(True)[1:]),
    "shifted": lambda text: re.sub(r":(\d+):d", lambda m: f":{int(m[1]) + 1}:d", text),
    "reversed": lambda text: "".join(reversed(text.splitlines(True))),
    "a page": lambda text: "<html><body>Not here</body></html>",
    "other words": lambda text: text.replace(":T:", ":ZZ:"),
    "huge": lambda text: text.replace(":0:d=", f":{10**17}:d="),
    "no words": lambda text: re.sub(r"d=.*", "", text),
}


@pytest.mark.long(but=5)
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_index_files(site: Site, files: list[Path], wrong: str) -> None:
    served(site, *files)
    gridref.scan(f"{site.url}/f003.grib2")
    site.files["/f006.grib2.idx"] = WRONG[wrong](idx(files[1])).encode()
    group = gridref.scan(f"{site.url}/f006.grib2")
    n_equal, n_refused = assert_nothing_wrong(group, files[1])
    n_fields = len(in_file(files[1]))
    if any(finding.path == "/index file" for finding in group.report):
        assert (n_equal, n_refused) == (n_fields, 0)
    else:
        assert n_refused or n_equal == n_fields


def test_a_message_that_is_not_as_claimed_names_the_index_file(
    site: Site, files: list[Path], tmp_path: Path
) -> None:
    served(site, *files)
    gridref.scan(f"{site.url}/f003.grib2")
    site.files["/f006.grib2.idx"] = swap_words(idx(files[1])).encode()
    address = tmp_path / "cube.gridref"
    gridref.build([f"{site.url}/f006.grib2"], address)
    cube = gridref.open_catalog(address)
    with pytest.raises(DecodeError, match="not the one that the index file beside it lists"):
        cube["isobaricInhPa/u"][...]
    assert np.isfinite(cube["isobaricInhPa/t"][...]).all()


@pytest.mark.parametrize(
    "arranged", [lambda v: v.expand_dims("run"), lambda v: v.transpose("longitude", ...)]
)
def test_claims_hold_however_axes_are_arranged(
    site: Site, files: list[Path], arranged: Callable[[Any], Any]
) -> None:
    served(site, *files)
    gridref.scan(f"{site.url}/f003.grib2")
    site.files["/f006.grib2.idx"] = swap_words(idx(files[1])).encode()
    ds = gridref.open_virtual_dataset(f"{site.url}/f006.grib2", group="isobaricInhPa")
    with pytest.raises(DecodeError, match="not the one that the index file beside it lists"):
        np.asarray(arranged(ds["u"]).data)


def test_index_files_of_other_files(site: Site, files: list[Path], tmp_path: Path) -> None:
    """Of another step, day and run: the messages of all are of the same sizes."""
    good, other = files
    day = forecast(tmp_path / "day.grib2", 6, dataDate=20240302)
    run = forecast(tmp_path / "run.grib2", 6, dataTime=1200)
    served(site, good, other, day, run)
    gridref.scan(f"{site.url}/{good.name}")
    for of in (good, day, run):
        site.files["/f006.grib2.idx"] = idx(of).encode()
        group = gridref.scan(f"{site.url}/f006.grib2")
        assert "a different field" in str(group.report)
        assert assert_nothing_wrong(group, other)[1] == 0


def mutated(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                text = text[:at] + text[at + rng.randrange(1, 40) :]
            case 1:
                text = text[:at] + rng.choice("0123456789:-\n acf") + text[at + 1 :]
            case 2:
                piece = rng.randrange(len(text) + 1)
                text = text[:at] + text[piece : piece + rng.randrange(60)] + text[at:]
            case _:
                lines = text.splitlines(True)
                rng.shuffle(lines) if rng.random() < 0.1 else lines.insert(0, lines.pop())
                text = "".join(lines)
    return text


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 20))]
)
@pytest.mark.parametrize("lists", [idx, index])
def test_mutated_index_files(files: list[Path], lists: Callable[[Path], str], seed: int) -> None:
    rng = random.Random(seed)

    def listed(path: Path, text: str) -> VirtualGroup:
        with working(reads=Reads()), open_for_scan(path) as file:
            head = file.read_many([0], [1 << 14])[0]
            fields = listed_fields(file, head, read_index(text.encode(), file.size))
            group = group_of_fields(fields, file.source, ScanOptions(on_unsupported="skip"))
            return readable(group, Sources(None))

    listed(files[0], lists(files[0]))
    text = lists(files[1])
    for _ in range(25):
        try:
            group = listed(files[1], mutated(text, rng))
        except UnfitIndexError:
            continue
        assert_nothing_wrong(group, files[1])
