"""Names of any characters through every door: the right values under them, or what is shown."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import h5py
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import NotRepresentableError
from gridref.faces.http import create_app
from gridref.serve.names import IN_ADDRESSES, shown_name
from tests.conformance.door_archives import Archive
from tests.conformance.doors import DOORS, Door, Place
from tests.uvicorn_server import running, running_elsewhere

NAMES = (
    "a b", "a%b", "%", "100%", "x%20y", "x%2Fy", "u%23v", "a?b", "a?", "?b", "a#b", "#b", "b#",
    "a\\b", "\\", "a+b", "a&b", "a=b", "ä", "a:b", "a::b", "a;b", "a,b", "a@b", "$a", "a!b", "~a",
    "^", "|", "<a>", "*", "a*b", "[x]", "a[0]", "{x}", "{{x}}", 'a"b', "a'b", ".a", "a..b", "-",
    " a", "a ", "c", "zarr.json", "a\nb", "a\r\nb", "a\tb", "a\x1bb", "a\x7f", "a\u2028b",
)  # fmt: skip


UNSAFE = [name for name in NAMES if shown_name(name, IN_ADDRESSES) != name]


def values_of(name: str) -> NDArray[np.float64]:
    return np.arange(12.0).reshape(3, 4) + 100 * (1 + NAMES.index(name))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Archive, Place]]:
    folder = tmp_path_factory.mktemp("names")
    path = folder / "a #1 100%25?.h5"
    with h5py.File(path, "w") as file:
        for name in NAMES:
            # Chunks that are asked for under a wrong name read as -1.
            file.create_dataset(name, data=values_of(name), chunks=(2, 2), fillvalue=-1.0)
            file.create_dataset(f"g/{name}/v", data=-values_of(name), chunks=(2, 2), fillvalue=-1.0)
    archive = Archive("a", (path,), gridref.scan(path))
    write_catalog(archive.group, Place(folder, "").catalog(archive))
    with running_elsewhere({"a": str(Place(folder, "").catalog(archive))}) as url:
        yield archive, Place(folder, url)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_every_name_through_every_door(place: tuple[Archive, Place], door: Door) -> None:
    archive, where = place
    with door.configured(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = door.open(archive, where)
        root = opened("")
        for name in NAMES:
            np.testing.assert_array_equal(root[door.shown(name)].values, values_of(name), name)
        for name in UNSAFE:
            group = opened(door.shown(f"g/{name}"))
            np.testing.assert_array_equal(group["v"].values, -values_of(name), name)


@pytest.mark.parametrize("asked", ["a%3Fb", "a%253Fb"], ids=["quoted once", "quoted twice"])
def test_clients_quote_a_shown_name_or_do_not(place: tuple[Archive, Place], asked: str) -> None:
    archive, _ = place
    with running(create_app({"a": archive.group})) as url:
        chunk = httpx.get(f"{url}/a/native/{asked}/c/0/0").raise_for_status().content
    np.testing.assert_array_equal(np.frombuffer(chunk).reshape(2, 2), values_of("a?b")[:2, :2])


def test_names_that_could_not_be_told_apart_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a?b"], file["a%3Fb"], file["c\\d"], file["c%5Cd"] = range(4)
    group = gridref.scan(tmp_path / "a.h5")
    with pytest.raises(NotRepresentableError, match=r"'a\?b' and 'a%3Fb' cannot be told apart"):
        create_app({"a": group})
    with pytest.raises(NotRepresentableError, match="'c%5Cd' cannot be told apart"):
        gridref.open_store(group)
