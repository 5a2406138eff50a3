"""The door matrix: ``python -m tests.conformance.door_table`` writes ``docs/doors.md``."""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.api.catalog import write_catalog
from gridref.errors import GridrefError
from gridref.model.array import VirtualGroup
from tests.conformance.door_archives import Archive, all_archives, comparable
from tests.conformance.doors import DOORS, Door, Place
from tests.uvicorn_server import running_elsewhere

PAGE = Path(__file__).resolve().parents[2] / "docs" / "doors.md"

INTRODUCTION = """\
# Which door opens what

A door is a way to open an array. The conformance tests try each door with arrays of all shared test
files, and with generated arrays of each dtype, encoding and layout. Of arrays that differ only in
lengths they try one. If a door only adds a transport or a pipeline to another door, they try one
array of each kind. Of large arrays they read the first and the last corner. `make doors` writes
this page; the tests fail if it is out of date. `make doors ARGS=--every-array` leaves out nothing.

- **equal**: every bit equals the result of gridref's own reader. Other tests compare that reader
  with the original reader of each format.
- **refused**: an error names the array and the reason.

No door returned anything else. The tests compare stored values (`mask_and_scale=False`); xarray
decodes them in the same way for each door. Zarr has no type for compounds with arrays as members:
they are raw bytes, and the bytes are compared. References with uneven chunks need zarr-python's
`array.rectilinear_chunks`.
"""


@dataclass
class Results:
    """What became of the arrays.

    Attributes
    ----------
    tried, equal
        Number of arrays, by door.
    refused
        Number of arrays by door and reason.
    wrong
        What was neither equal nor refused: door, archive and path, and what came.
    examples
        An array of each door and reason.
    """

    tried: Counter[str] = field(default_factory=Counter)
    equal: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)

    def refuse(self, door: Door, archive: Archive, path: str, error: Exception) -> None:
        """Note a refusal."""
        key = door.name, reason_of(error)
        self.refused[key] += 1
        self.examples.setdefault(key, f"{archive} {path}")


def reason_of(error: Exception) -> str:
    """The reason of an error without names and numbers."""
    text = error.reason if isinstance(error, GridrefError) else f"{type(error).__name__}: {error}"
    if text.startswith("kerchunk references cannot express"):
        text = text.splitlines()[-1].partition(": ")[2]  # of the array, behind its name
    text = text.partition("\n")[0]
    text = re.sub(r"""'[^']*'|"[^"]*"|\([^)]*\)|\[[^]]*\]|\{[^}]*\}""", "…", text)
    return re.sub(r"[\d.]*\d", "N", text).replace("|", "/")[:160]


def run(folder: Path, *, every_array: bool = False) -> Results:
    """Try one array of each kind, or every one, through every door."""
    results = Results()
    archives = list(all_archives(folder, every_array=every_array))
    place = Place(folder, "")
    for archive in archives:
        write_catalog(archive.group, place.catalog(archive))
    catalogs = {archive.name: str(place.catalog(archive)) for archive in archives}
    with warnings.catch_warnings(), running_elsewhere(catalogs) as url:
        warnings.simplefilter("ignore")
        for door in DOORS:
            with door.configured():
                for archive in archives:
                    _try(results, door, archive, Place(folder, url))
    return results


def _try(results: Results, door: Door, archive: Archive, place: Place) -> None:
    wanted = archive.samples if door.samples else list(archive.values)
    results.tried[door.name] += len(wanted)
    refused = dict(_refused_before(door, archive, wanted))
    for path, error in refused.items():
        results.refuse(door, archive, path, error)
    left = [path for path in wanted if path not in refused]
    tried = _only(archive, left) if refused else archive
    opened = cache(lambda: door.open(tried, place))
    for group in dict.fromkeys(path.rpartition("/")[0] for path in left):
        paths = [path for path in left if path.rpartition("/")[0] == group]
        try:
            dataset = opened()(door.shown(group))
        except Exception as error:  # noqa: BLE001 (each door has errors of its own)
            for path in paths:
                results.refuse(door, archive, path, error)
            continue
        for path in paths:
            _compare(results, door, archive, path, dataset)


def _refused_before(
    door: Door, archive: Archive, paths: list[str]
) -> Iterator[tuple[str, Exception]]:
    if door.refuse is None:
        return
    with suppress(GridrefError):
        door.refuse(archive.group)
        return
    arrays = archive.group.all_arrays()
    for path in paths:
        try:
            door.refuse(VirtualGroup({"a": arrays[path]}))
        except GridrefError as error:
            yield path, error


def _only(archive: Archive, paths: list[str]) -> Archive:
    """The archive with some of its arrays."""

    def kept(group: VirtualGroup, head: str) -> VirtualGroup:
        arrays = {name: array for name, array in group.arrays.items() if head + name in paths}
        groups = {name: kept(part, f"{head}{name}/") for name, part in group.groups.items()}
        return group.with_changes(arrays=arrays, groups=groups)

    return replace(archive, group=kept(archive.group, ""))


def _compare(
    results: Results, door: Door, archive: Archive, path: str, dataset: xr.Dataset
) -> None:
    name = door.shown(path).rpartition("/")[2]
    where = f"{door.name}: {archive} {path}"
    for corner, expected in archive.values[path]:
        try:
            values = comparable(dataset[name].variable[corner].values)
        except Exception as error:  # noqa: BLE001
            results.refuse(door, archive, path, error)
            return
        if (difference := why_different(values, expected)) is not None:
            results.wrong.append(f"{where}: {difference}")
            return
    results.equal[door.name] += 1


def why_different(values: NDArray[np.generic], expected: NDArray[np.generic]) -> str | None:
    """How values differ, in any bit; None if they do not."""
    if values.shape != expected.shape:
        return f"shape {values.shape}, not {expected.shape}"
    if expected.dtype.names and values.dtype == np.dtype(f"V{expected.dtype.itemsize}"):
        values = values.view(expected.dtype)  # raw bytes, where Zarr has no such compound
    if values.dtype != expected.dtype:
        return f"dtype {values.dtype}, not {expected.dtype}"
    if expected.dtype.kind == "O":
        return None if values.tolist() == expected.tolist() else "other text"
    same = np.ascontiguousarray(values).tobytes() == np.ascontiguousarray(expected).tobytes()
    return None if same else "other bits"


def render(results: Results) -> str:
    """The page."""
    lines = [INTRODUCTION, "| door | call | tried | equal | refused |", "|---" * 5 + "|"]
    for door in DOORS:
        refused = sum(n for (name, _), n in results.refused.items() if name == door.name)
        counts = f"{results.tried[door.name]} | {results.equal[door.name]} | {refused}"
        lines.append(f"| {door.name} | {door.about} | {counts} |")
    lines += ["", "## Why arrays are refused", "", "| door | reason | arrays |", "|---" * 3 + "|"]
    for (name, reason), number in sorted(results.refused.items()):
        lines.append(f"| {name} | {reason} | {number} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the page; with ``--every-array`` print what comes if no array is left out."""
    every_array = sys.argv[1:] == ["--every-array"]
    with tempfile.TemporaryDirectory() as folder:
        results = run(Path(folder), every_array=every_array)
    if every_array:
        print(render(results))
    else:
        PAGE.write_text(render(results))
        print(f"wrote {PAGE}")
    for key, example in sorted(results.examples.items()):
        print(*key, example, sep=" | ")
    if results.wrong:
        sys.exit("\n".join(results.wrong))


if __name__ == "__main__":
    main()
