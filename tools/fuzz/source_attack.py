"""Sources that change after they were indexed: every door reads them as they were, or not."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path

import numpy as np

import gridref
from gridref.errors import GridrefError
from gridref.faces.web.publishing import publish
from tests.attack_doors import DOORS, is_told_by_http
from tests.http_server import Site
from tools.fuzz.catalog_attack import make_catalog

__all__ = ["ServedSourceAttack", "SourceAttack"]


class SourceAttack:
    """Changes one source in one way, and reads through one door.

    Parameters
    ----------
    folder
        A new folder.
    checksums
        Whether the catalog has checksums; then also changes that keep size and time are made.
    """

    def __init__(self, folder: Path, *, checksums: bool) -> None:
        folder.mkdir()
        self.catalog = make_catalog(folder)
        self.source = folder / "0.nc"
        if checksums:
            files = [folder / "0.nc", folder / "1.nc"]
            gridref.build(files, self.catalog, "time", checksums=True, overwrite=True)
        self.content, self.stat = self.source.read_bytes(), self.source.stat()
        self.expected = DOORS["own reader"](self.catalog, "a")
        self.ways = [*_CHANGES, *(_HIDDEN if checksums else ())]
        self.tries = list(itertools.product(DOORS.values(), self.ways))

    def __call__(self, seed: int) -> str | None:
        """One attempt: what broke, if anything did."""
        door, change = self.tries[seed % len(self.tries)]
        change(self.source, random.Random(seed))
        try:
            found = door(self.catalog, "a")
        except Exception as error:  # noqa: BLE001 - judged here
            if isinstance(error, GridrefError) or is_told_by_http(error):
                return None
            return f"{change.__name__}: {type(error).__name__}: {error}"[:200]
        finally:
            self._restore()
        return None if np.array_equal(found, self.expected) else f"other values: {change.__name__}"

    def _restore(self) -> None:
        if self.source.is_dir() and not self.source.is_symlink():
            shutil.rmtree(self.source)
        else:
            self.source.unlink(missing_ok=True)
        self.source.write_bytes(self.content)
        os.utime(self.source, ns=(self.stat.st_atime_ns, self.stat.st_mtime_ns))


class ServedSourceAttack:
    """Changes one source on an HTTP server, and its tags, and reads through one door.

    Parameters
    ----------
    folder
        A new folder.
    site
        A running server, which is this attack's alone.
    """

    def __init__(self, folder: Path, site: Site) -> None:
        folder.mkdir()
        make_catalog(folder)
        self.site = site
        self.files = {f"/{n}.nc": (folder / f"{n}.nc").read_bytes() for n in range(2)}
        self._restore()
        self.catalog = folder / "served.gridref"
        gridref.build([f"{site.url}{name}" for name in self.files], self.catalog, "time")
        publish(self.catalog, folder / "published", base_url=f"{site.url}/published")
        self.published = {
            f"/published/{path.relative_to(folder / 'published')}": path.read_bytes()
            for path in (folder / "published").rglob("*")
            if path.is_file()
        }
        self._restore()
        address = f"{site.url}/published/served.gridref"
        read = DOORS["own reader"]
        self.doors = [*DOORS.values(), lambda _, name: read(address, name)]
        self.expected = read(self.catalog, "a")

    def __call__(self, seed: int) -> str | None:
        """One attempt: what broke, if anything did."""
        rng = random.Random(seed)
        door = self.doors[seed % len(self.doors)]
        name, content = "/0.nc", bytearray(self.files["/0.nc"])
        etag, modified = rng.choice((None, '"v2"', '"v1"')), rng.choice((None, _LATER, _THEN))
        if (etag, modified) == ('"v1"', _THEN):
            etag = None  # what keeps both is the file, for all that anybody can know
        way = rng.choice(("flip", "cut", "extend", "exchange", "redirect", "no ranges", "tags"))
        if way == "flip":
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        elif way == "cut":
            del content[rng.randrange(len(content)) :]
        elif way == "extend":
            content += bytes(rng.randrange(1, 5000))
        elif way == "exchange":
            content = bytearray(self.files["/1.nc"])
        elif way == "redirect":
            self.site.redirects[name] = "/1.nc"
        self.site.ignores_ranges = way == "no ranges"
        self.site.files[name] = bytes(content)
        self.site.etags[name], self.site.modified[name] = etag, modified
        try:
            found = door(self.catalog, "a")
        except Exception as error:  # noqa: BLE001 - judged here
            if isinstance(error, GridrefError) or is_told_by_http(error):
                return None
            return f"{way}: {type(error).__name__}: {error}"[:200]
        finally:
            self._restore()
        return None if np.array_equal(found, self.expected) else f"other values: {way}"

    def _restore(self) -> None:
        site = self.site
        site.files = self.files | getattr(self, "published", {})
        site.etags = {"/0.nc": '"v1"', "/1.nc": '"of another file"'}
        site.modified = dict.fromkeys(self.files, _THEN)
        site.redirects, site.ignores_ranges = {}, False
        site.requests.clear()
        site.headers.clear()


_THEN, _LATER = "Wed, 01 Jul 2026 00:00:00 GMT", "Sat, 01 Aug 2026 00:00:00 GMT"


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _cut(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def _remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def _replace_by_the_other(path: Path, rng: random.Random) -> None:
    path.unlink()
    shutil.copy(path.with_name("1.nc"), path)


def _replace_by_a_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _replace_by_a_pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_by_a_link(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.with_name("1.nc"))


def _flip_in_secret(path: Path, rng: random.Random) -> None:
    """Size and time of change of the content stay."""
    before = path.stat()
    _flip(path, rng)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _shift_in_secret(path: Path, rng: random.Random) -> None:
    before, content = path.stat(), path.read_bytes()
    by = rng.randrange(1, len(content))
    path.write_bytes(content[by:] + content[:by])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


_CHANGES = (
    _flip, _cut, _remove, _replace_by_the_other, _replace_by_a_folder, _replace_by_a_pipe,
    _replace_by_a_link,
)  # fmt: skip
_HIDDEN = (_flip_in_secret, _shift_in_secret)
