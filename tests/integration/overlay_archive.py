"""An archive that changes at random, and a catalog of it with overlays, for tests.

Each element says which file it is of, in which version, and where it is. So a stale value names
itself.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gridref
from gridref.errors import GridrefError, SourceChangedError
from tests.integration.archives import write_hdf5

N_LAT, N_LON = 4, 6
LAYOUTS = ({"time": -1, "lat": 2, "lon": 3}, {"time": 3, "lat": 4, "lon": 6})


type Held = dict[str, tuple[int, NDArray[Any]]]
"""By path of a file its first label, and its values."""


class Archive:
    """Files of a few steps each, a catalog of them, and random changes of both.

    Parameters
    ----------
    folder
        Where everything goes.
    seed
        Of what happens.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = np.random.default_rng(seed)
        self.url = str(folder / "cube.gridref")
        self.held: Held = {}
        self.former: list[tuple[str, Held]] = []  # snapshots that can be opened
        self.n_written = 0
        self.n_covered = 0
        self.done: list[str] = []
        files = [self.new_file(10 * n) for n in range(3)]
        gridref.build(files, self.url, concat_dim="time")
        self.handle = gridref.open_catalog(self.url)

    # Files

    def new_file(self, label: int, path: str | None = None) -> str:
        """Write a file of up to four steps, whose first label it is; it is in the archive then."""
        path = path or str(self.folder / f"file{self.n_written}.nc")
        n_steps = len(self.held[path][1]) if path in self.held else int(self.random.integers(1, 5))
        self.n_written += 1
        shape = (n_steps, N_LAT, N_LON)
        values = 1000.0 * self.n_written + np.arange(np.prod(shape)).reshape(shape)
        draft = f"{path}.new"
        labels = {"time": label + np.arange(n_steps)}
        labels |= {"lat": np.arange(N_LAT, dtype="f8"), "lon": np.arange(N_LON, dtype="f8")}
        storage = {"chunks": (1, N_LAT, N_LON)}
        write_hdf5(Path(draft), labels, {"tas": ([*labels], values, {}, storage)})
        os.replace(draft, path)
        self.held[path] = (label, values)
        return path

    @property
    def expected(self) -> NDArray[Any]:
        """What the array holds now."""
        return _values_of(self.held)

    # Changes

    def step(self) -> None:
        """Make a random change, and read."""
        changes: dict[Callable[[], None], int] = {
            self.append: 5, self.rewrite: 2, self.replace: 2, self.remove: 2, self.rechunk: 6,
            self.rechunk_labels: 2,
            self.drop: 1, self.rollback: 1, self.prune: 1, self.tag: 1, self.amend: 1,
            self.rebuild: 1, self.crash: 2, self.relocate: 1, self.other_writer: 1,
        }  # fmt: skip
        weights = np.array([*changes.values()], float)
        change = self.random.choice(np.array([*changes], object), p=weights / weights.sum())
        self.done.append(change.__name__)
        change()
        self.read()

    def append(self) -> None:
        labels = {label for label, _ in self.held.values()}
        label = 10 * int(self.random.integers(0, 60))
        if label not in labels and len(labels) < 30:
            self.commit(lambda catalog: catalog.append(self.new_file(label)))

    def rewrite(self) -> None:
        path = self.any_file()
        self.new_file(self.held[path][0], path)
        opened = gridref.open_catalog(self.url, overlay=0)
        try:
            opened["tas"].read()
        except SourceChangedError:
            pass
        else:
            raise AssertionError("values of a file that has changed")
        self.former.clear()  # whose file is gone
        self.commit(lambda catalog: catalog.refresh())

    def replace(self) -> None:
        path = self.any_file()
        label, values = self.held.pop(path)
        by = str(self.folder / f"file{self.n_written}.nc")
        self.held[by] = (label, values)
        self.new_file(label, by)
        self.commit(lambda catalog: catalog.replace(path, by))

    def remove(self) -> None:
        if len(self.held) > 2:
            path = self.any_file()
            del self.held[path]
            self.commit(lambda catalog: catalog.remove(path))

    def rechunk(self) -> None:
        layout = LAYOUTS[int(self.random.integers(2))]
        where = None
        if self.random.random() < 0.3:
            where = {"lat": slice(1, 2)}
        self.commit(lambda catalog: catalog.rechunk("tas", layout, where=where, memory="400MB"))

    def rechunk_labels(self) -> None:
        """Labels, which are kept in the catalog's tables."""
        self.commit(lambda catalog: catalog.rechunk("time", {"time": -1}))

    def drop(self) -> None:
        of_all = gridref.open_catalog(self.url).overlays()
        overlays = [each for each in of_all if each.array == "tas"]
        if overlays:
            number = int(self.random.integers(len(overlays)))
            self.commit(lambda catalog: catalog.drop_overlay("tas", number))

    def rollback(self) -> None:
        """Back to a snapshot whose content is known."""
        if self.former:
            snapshot, held = self.former[int(self.random.integers(len(self.former)))]
            self.held = dict(held)
            self.commit(lambda catalog: catalog.rollback(snapshot))

    def prune(self) -> None:
        gridref.open_catalog(self.url).prune(keep=2, grace_seconds=0)
        kept = {commit.id for commit in gridref.open_catalog(self.url).history()[:2]}
        self.former = [each for each in self.former if each[0] in kept]

    def tag(self) -> None:
        self.commit(lambda catalog: catalog.tag("kept"))

    def amend(self) -> None:
        opened = gridref.open_catalog(self.url)
        if opened.info.snapshot not in opened.info.tags.values():
            label = 10 * int(self.random.integers(60, 90))
            if label not in {label for label, _ in self.held.values()}:
                self.former = [e for e in self.former if e[0] != opened.info.snapshot]
                path = self.new_file(label)
                self.commit(lambda catalog: catalog.amend().append(path))

    def rebuild(self) -> None:
        """The same files, built anew in the same place."""
        files = [path for path, _ in sorted(self.held.items(), key=lambda item: item[1][0])]
        gridref.build(files, self.url, concat_dim="time", overwrite=True)

    def crash(self) -> None:
        """A rechunk that dies before its last commit, or in the middle of writing."""
        layout = LAYOUTS[int(self.random.integers(2))]
        calls = [0]
        dies_at = int(self.random.integers(1, 3))

        def progress(done: int, of: int) -> None:
            calls[0] += 1
            if calls[0] >= dies_at or done == of:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            gridref.open_catalog(self.url).rechunk("tas", layout, progress=progress)

    def relocate(self) -> None:
        """Move all files."""
        to = self.folder / f"moved{len(self.done)}"
        to.mkdir()
        for path in self.held:
            shutil.copy2(path, to)
        moved = {str(to / Path(path).name): held for path, held in self.held.items()}
        old = {str(Path(path).parent) for path in self.held}
        if len(old) == 1:
            self.commit(lambda catalog: catalog.relocate({old.pop(): str(to)}))
            self.held = moved
            self.former.clear()

    def other_writer(self) -> None:
        """A change by somebody who opened the catalog long ago."""
        label = 10 * int(self.random.integers(90, 120))
        if label not in {label for label, _ in self.held.values()}:
            path = self.new_file(label)
            try:
                self.handle.append(path)
            except GridrefError:  # what is there now does not fit
                del self.held[path]
            self.handle = gridref.open_catalog(self.url)

    def commit(self, change: Callable[[gridref.Catalog], Any]) -> None:
        """Change the catalog, and remember the snapshot of before."""
        change(gridref.open_catalog(self.url))

    def any_file(self) -> str:
        return sorted(self.held)[int(self.random.integers(len(self.held)))]

    # Reads

    def read(self) -> None:
        """Compare what the catalog holds, by overlays and by files, with what was written."""
        expected = self.expected
        number = int(self.random.integers(3))
        for overlay in ("auto", number):
            opened = gridref.open_catalog(self.url, overlay=overlay)
            array = opened["tas"]
            assert array.shape == expected.shape, self.done
            labels = _labels_of(self.held)
            np.testing.assert_array_equal(opened["time"].read(), labels, err_msg=str(self.done))
            for selection in (None, self.selection(expected.shape)):
                got = array.read(selection)
                wanted = expected if selection is None else _orthogonal(expected, selection)
                np.testing.assert_array_equal(got, wanted, err_msg=str(self.done[-10:]))
        self.n_covered += sum(
            int(info.covered * expected.size) for info in opened.overlays() if info.array == "tas"
        )
        if self.former and self.random.random() < 0.3:
            snapshot, held = self.former[int(self.random.integers(len(self.former)))]
            past = gridref.open_catalog(self.url, snapshot=snapshot, overlay=0)
            np.testing.assert_array_equal(past["tas"].read(), _values_of(held))
        self.former = [*self.former[-4:], (opened.info.snapshot, dict(self.held))]

    def selection(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """A slice, a list or an integer along each axis."""
        chosen: list[Any] = []
        for extent in shape:
            low, high = sorted(self.random.integers(0, extent + 1, 2).tolist())
            some = self.random.integers(0, extent, 3)
            kinds = (slice(low, high), slice(None, None, -2), slice(None), some, int(some[0]))
            chosen.append(kinds[int(self.random.integers(len(kinds)))])
        return tuple(chosen)


def _labels_of(held: Held) -> NDArray[Any]:
    return np.concatenate(
        [label + np.arange(len(values)) for label, values in sorted(held.values(), key=_label)]
    )


def _label(each: tuple[int, NDArray[Any]]) -> int:
    return each[0]


def _values_of(held: Held) -> NDArray[Any]:
    return np.concatenate([values for _, values in sorted(held.values(), key=_label)])


def _orthogonal(values: NDArray[Any], selection: tuple[Any, ...]) -> NDArray[Any]:
    for axis, index in reversed([*enumerate(selection)]):
        values = values[(slice(None),) * axis + (index,)]
    return values


def main(n_changes: int, seed: int) -> None:
    """Change archives of 100 steps each, and say how far it is."""
    for number in range(-(-n_changes // 100)):
        with TemporaryDirectory() as folder:
            archive = Archive(Path(folder), seed * 100_000 + number)
            for _ in range(min(100, n_changes - 100 * number)):
                archive.step()
            print(f"{100 * number + len(archive.done)} changes, none stale", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
