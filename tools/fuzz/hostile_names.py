"""Names that are hostile on purpose, of arrays, groups, dimensions, attributes and files.

Each goes through all doors: what a door shows of the data is right, or the door ends in an error of
ours. Nothing of a name becomes markup on a page, a control sequence in a terminal, or a file beside
where an export goes to. ``python -m tools.fuzz.hostile_names`` tries all names in all roles.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import fsspec
import h5py
import httpx
import numpy as np
import tifffile
import xarray as xr
import zarr

import gridref
from gridref.errors import GridrefError
from gridref.faces.cli import main as main_command
from gridref.faces.cli.look import TABLES
from gridref.faces.exports.icechunk import to_icechunk
from gridref.faces.exports.kerchunk import to_kerchunk, write_references
from gridref.faces.http import create_app
from gridref.faces.web.publishing import publish as publish_catalog
from tests.attack_doors import is_told_by_http
from tests.uvicorn_server import running

__all__ = ["DOORS", "NAMES", "ROLES", "BrokenError", "make", "try_name"]

NAMES: dict[str, str] = {
    "ordinary": "plain",
    "way up": "..",
    "here": ".",
    "empty": "",
    "slash": "a/b",
    "root": "/",
    "far way up": "../../x",
    "absolute": "/etc/passwd",
    "backslash": "a\\b",
    "ways": "..\\..\\x",
    "NUL": "a\0b",
    "newline": "a\nb",
    "return": "a\r\nSet-Cookie: x=1",
    "escape": "\x1b[2J\x1b]0;x\x07",
    "C1": "a\x9b31m",
    "bell": "\x07",
    "delete": "a\x7f",
    "to the left": "a\u202ecba",
    "BOM": "\ufeffa",
    "separator": "a\u2028b",
    "no width": "a\u200bb",
    "surrogate": "a\ud800",
    "not UTF-8": "a\udcff",
    "300": "n" * 300,
    "5000": "n" * 5000,
    "70000": "n" * 70_000,
    "wide": "\U0001f600" * 80,
    "markup": "<script>alert(1)</script>",
    "image": "<xss onerror=alert(1)>",
    "quotes": "\"'><xss>",
    "comment": "--><xss><!--",
    "style": "</style><xss>",
    "link": "javascript:alert(1)",
    "braces": "{x}",
    "template": "{{x}}",
    "percent": "%s%n%(x)s",
    "quoted": "%2e%2e",
    "slash quoted": "a%2Fb",
    "NUL quoted": "%00",
    "c": "c",
    "zarr.json": "zarr.json",
    ".zarray": ".zarray",
    ".zmetadata": ".zmetadata",
    ".zattrs": ".zattrs",
    "prototype": "__proto__",
    "constructor": "constructor",
    "toString": "toString",
    "dunder": "__class__",
    "catalog": "gridref.json",
    "table": "chunks.parquet",
    "lock": ".gridref.json.lock",
    "refs": ".zgroup",
    "dimension": "y",
    "phony": "phony_dim_0",
    "upper": "V",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "blank": " ",
    "leading": " a",
    "trailing": "a ",
    "tab": "\t",
    "dot": "a.",
    "star": "*",
    "brackets": "[/red]x[/]",
    "question": "a?b",
    "fragment": "#",
    "ampersand": "a&b=c",
    "dash": "-rf",
    "option": "--help",
    "colon": "c:",
    "scheme": "file:///etc/passwd",
    "link of links": "gridref::x",
    "at": "@{x}",
    "device": "con",
    "sql": 'v"; DROP TABLE sources; --',
    "formula": "=1+1",
    "number": "0",
    "null": "null",
    "true": "true",
    "views": "native",
    "pages": "chunks",
    "self": "self",
    "history": "snapshots",
    "dollar": "$numpy",
    "xml": "]]>&lt;",
}
"""What is tried, by what it is; lone surrogates between U+DC80 and U+DCFF stand for bytes."""

_LIKE_OTHERS = frozenset(
    {
        "C1",
        "bell",
        "delete",
        "separator",
        "no width",
        "5000",
        "image",
        "comment",
        "style",
        "template",
        "percent",
        "NUL quoted",
        ".zattrs",
        "toString",
        "dunder",
        "table",
        "lock",
        "composed",
        "leading",
        "tab",
        "dot",
        "star",
        "ampersand",
        "option",
        "colon",
        "link of links",
        "at",
        "device",
        "null",
        "true",
        "views",
        "self",
        "history",
        "xml",
        "wide",
        "root",
        "absolute",
        "decomposed",
        "number",
    }
)

VALUES = np.arange(12.0).reshape(3, 4) + 0.5
"""The data of every file: no other array has this shape."""
_OTHER = np.arange(5)
_SECONDS = 30
_TOO_LONG = 431
"""The status of requests whose address is longer than the server takes."""

Maker = Callable[[Path, str], list[Path]]


class BrokenError(AssertionError):
    """What a door did that it must not do."""


# Files that have a name somewhere


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass" if "\ud800" in name else "surrogateescape")


def _hdf5(path: Path, put: Callable[[h5py.File], None]) -> list[Path]:
    with h5py.File(path, "w") as file:
        put(file)
    return [path]


def _dataset(group: h5py.Group, name: bytes, values: Any = VALUES) -> h5py.Dataset:
    """A chunked dataset with a name of any bytes; what is asked for under others reads as -1."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(tuple(min(2, n) for n in values.shape))
    plist.set_fill_value(np.array(-1, values.dtype))
    space = h5py.h5s.create_simple(values.shape)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    made = h5py.h5d.create(group.id, None, h5py.h5t.py_create(values.dtype), space, plist)
    h5py.h5o.link(made, group.id, name, lcpl=links)
    dataset = h5py.Dataset(made)
    dataset[...] = values
    return dataset


def _patched(path: Path, name: str, put: Callable[[h5py.File, bytes], None]) -> list[Path]:
    """A file whose names cannot be written with HDF5: they are put in afterwards."""
    raw = _bytes(name)
    can = raw not in (b"", b".", b"/") and b"\0" not in raw
    other = raw if can else (b"QZQZQZQZ"[: len(raw)] or b"QZ")
    made = _hdf5(path, lambda file: put(file, other))
    if not can:
        content = path.read_bytes()
        assert content.count(other)
        path.write_bytes(content.replace(other, raw.ljust(len(other), b"\0")))
    return made


def _array(folder: Path, name: str) -> list[Path]:
    def put(file: h5py.File, raw: bytes) -> None:
        _dataset(file, raw)
        if raw != b"other":
            _dataset(file, b"other", _OTHER)

    return _patched(folder / "a.h5", name, put)


def _group(folder: Path, name: str) -> list[Path]:
    def put(file: h5py.File, raw: bytes) -> None:
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)
        made = h5py.Group(h5py.h5g.create(file.id, raw, lcpl=links))
        _dataset(made, b"v")
        made.attrs["title"] = "t"

    return _patched(folder / "a.h5", name, put)


def _dimension(folder: Path, name: str) -> list[Path]:
    def put(file: h5py.File, raw: bytes) -> None:
        data = _dataset(file, b"v" if raw != b"v" else b"w")
        scale = (
            _dataset(file, raw, np.arange(3)) if raw != b"y" else _dataset(file, b"y", np.arange(3))
        )
        h5py.h5ds.set_scale(scale.id, raw)
        h5py.h5ds.attach_scale(data.id, scale.id, 0)
        h5py.h5ds.set_label(data.id, 1, raw)

    return _patched(folder / "a.h5", name, put)


def _attribute(folder: Path, name: str) -> list[Path]:
    def put(file: h5py.File, raw: bytes) -> None:
        for owner in (file, _dataset(file, b"v")):
            kind = h5py.h5t.C_S1.copy()
            kind.set_size(4)
            made = h5py.h5a.create(owner.id, raw, kind, h5py.h5s.create(h5py.h5s.SCALAR))
            made.write(np.array(b"text"))

    return _patched(folder / "a.h5", name, put)


def _text(folder: Path, name: str) -> list[Path]:
    """An attribute's value: of those that conventions know, too."""

    def put(file: h5py.File) -> None:
        data = _dataset(file, b"v")
        for owner in (file, data):
            for attr in ("title", "units", "long_name", "history", "license", "coordinates", "x"):
                raw = _bytes(name)
                if len(raw) < 60_000:
                    owner.attrs[attr] = np.bytes_(raw) if raw else h5py.Empty("S1")

    return _hdf5(folder / "a.h5", put)


def _file(folder: Path, name: str) -> list[Path]:
    path = folder / os.fsdecode(_bytes(name))
    return _hdf5(path, lambda file: _dataset(file, b"v") and None)


def _zarr(folder: Path, name: str, **of_array: Any) -> list[Path]:
    """A Zarr folder with a directory of the name."""
    path = folder / "a.zarr"
    root = zarr.open_group(path, mode="w")
    root.create_array("QZ", data=VALUES, chunks=(2, 2), fill_value=-1, dimension_names=("y", "x"))
    if of_array:
        document = json.loads((path / "QZ/zarr.json").read_text()) | of_array
        (path / "QZ/zarr.json").write_text(json.dumps(document))
    else:
        target = path / os.fsdecode(_bytes(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(path / "QZ", target)
    return [path]


def _zarr_dimension(folder: Path, name: str) -> list[Path]:
    return _zarr(folder, name, dimension_names=[name, "x"])


def _zarr_attribute(folder: Path, name: str) -> list[Path]:
    return _zarr(folder, name, attributes={name: {name: name}, "units": name})


def _consolidated(folder: Path, name: str) -> list[Path]:
    """Consolidated metadata that name an array so; its chunks lie there if that can be."""
    path = folder / "a.zarr"
    root = zarr.open_group(path, mode="w")
    root.create_array("QZ", data=VALUES, chunks=(2, 2), fill_value=-1, dimension_names=("y", "x"))
    metadata = json.loads((path / "QZ/zarr.json").read_text())
    document = json.loads((path / "zarr.json").read_text())
    listed = {name: metadata, "QZ": metadata}
    document["consolidated_metadata"] = {
        "kind": "inline",
        "must_understand": False,
        "metadata": listed,
    }
    (path / "zarr.json").write_text(json.dumps(document))
    return [path]


def _references(folder: Path, name: str) -> list[Path]:
    """Kerchunk references under a name."""
    array = {"zarr_format": 2, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f8", "order": "C"}
    array |= {"fill_value": -1, "filters": None, "compressor": None}
    refs = {".zgroup": '{"zarr_format": 2}', f"{name}/.zarray": json.dumps(array)}
    refs[f"{name}/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": [name, "x"], name: name})
    (folder / "raw.bin").write_bytes(VALUES.tobytes())
    refs[f"{name}/0.0"] = ["raw.bin", 0, VALUES.nbytes]  # type: ignore[assignment]
    path = folder / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    return [path]


def _tags(folder: Path, name: str) -> list[Path]:
    """Texts of a TIFF: description, software, artist, name of the page, and those of GDAL."""
    raw = _bytes(name)
    item = f'<GDALMetadata><Item name="{name}">{name}</Item></GDALMetadata>'
    extra = [(code, "s", 0, raw, True) for code in (285, 269, 315, 33432)]
    if "\ud800" not in name and "\udcff" not in name:
        extra.append((42112, "s", 0, item.encode(), True))
    path = folder / "a.tif"
    tifffile.imwrite(path, VALUES, description=raw, software=raw, extratags=extra, metadata=None)
    return [path]


def _ome(folder: Path, name: str) -> list[Path]:
    """Names of the image and its channel in OME-XML."""
    path = folder / "a.ome.tif"
    metadata = {"axes": "YX", "Name": name, "Channel": {"Name": name}}
    tifffile.imwrite(path, VALUES, ome=True, metadata=metadata)
    return [path]


def _several(folder: Path, name: str) -> list[Path]:
    """Two files along a dimension of the name, which is a variable, too."""

    def put(file: h5py.File, raw: bytes) -> None:
        data = _dataset(file, b"v" if raw != b"v" else b"w")
        first = 0 if file.filename.endswith("a.h5") else 3
        scale = _dataset(file, raw, np.arange(3) + first)
        h5py.h5ds.set_scale(scale.id, raw)
        h5py.h5ds.attach_scale(data.id, scale.id, 0)
        data.attrs.create("x", file.filename)

    return [*_patched(folder / "a.h5", name, put), *_patched(folder / "b.h5", name, put)]


ROLES: dict[str, Maker] = {
    "array": _array, "group": _group, "dimension": _dimension, "attribute": _attribute,
    "text": _text, "file": _file, "Zarr array": _zarr, "Zarr dimension": _zarr_dimension,
    "Zarr attribute": _zarr_attribute, "consolidated": _consolidated, "references": _references,
    "TIFF tags": _tags, "OME names": _ome, "several files": _several,
}  # fmt: skip
"""Makers of files, by what has the name in them."""


def make(role: str, name: str, folder: Path) -> list[Path] | None:
    """Files with a name in a role; None where the format, or the system, cannot have it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ROLES[role](folder, name)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, AssertionError, OverflowError):
        return None


# Doors


class Case:
    """A catalog of files with a name, and what is looked for behind its doors."""

    def __init__(
        self, name: str, files: list[Path], folder: Path, *, may_lack_chunks: bool = False
    ) -> None:
        self.name, self.files, self.folder = name, files, folder
        self.catalog = folder / "cube.gridref"
        self.expected = np.concatenate([VALUES] * len(files))
        self.may_lack_chunks = may_lack_chunks

    def check(self, values: Any, where: str) -> None:
        """Values of an array of the data's shape have to be the data."""
        found = np.asarray(values)
        alike = found.dtype.kind == "f" and found.shape == self.expected.shape
        if self.may_lack_chunks and (found == -1).all():
            return
        if alike and not np.array_equal(found, self.expected):
            raise BrokenError(f"{where}: other values")

    def check_text(self, text: str, where: str) -> None:
        """Nothing that a terminal obeys."""
        found = re.search(
            r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text
        )
        if found:
            raise BrokenError(
                f"{where}: it prints {found[0]!r}: {text[max(0, found.start() - 60) :][:120]!r}"
            )
        if "Traceback" in text:
            raise BrokenError(f"{where}: a traceback: {text[-300:]}")


def _own(case: Case) -> None:
    group = gridref.open_catalog(case.catalog)
    for path, array in group.all_arrays().items():
        case.check(array[...], path)
    repr(group), group._repr_html_()
    _no_markup(group._repr_html_() or "", "notebook")


def _engine(case: Case) -> None:
    for options in ({"decode_cf": False}, {}):
        for dataset in xr.open_groups(case.catalog, engine="gridref", **options).values():
            for name, variable in dataset.variables.items():
                if options or "units" not in variable.attrs:
                    case.check(variable.to_numpy(), str(name))


def _stores(case: Case) -> None:
    broken = None
    for view in ("native", "portable", "direct"):
        try:
            root = zarr.open_group(gridref.open_store(case.catalog, view=view), mode="r")
            _walked(case, root, view)
        except GridrefError as error:
            broken = error
    if broken:
        raise broken


def _walked(case: Case, root: zarr.Group, where: str) -> None:
    n_seen = 0
    for name, member in root.members(max_depth=None):
        if isinstance(member, zarr.Array):
            case.check(member[...], f"{where} {name}")
            n_seen += member.shape == case.expected.shape
    arrays = gridref.open_catalog(case.catalog).all_arrays().values()
    if not n_seen and any(array.shape == case.expected.shape for array in arrays):
        raise BrokenError(f"{where}: the data are not there")


def _filesystem(case: Case) -> None:
    files = fsspec.filesystem("gridref", fo=str(case.catalog))
    for key in files.find(""):
        files.cat_file(key)
    store = f"gridref::file://{case.catalog}"
    for dataset in xr.open_groups(
        store, engine="zarr", decode_cf=False, consolidated=False
    ).values():
        for name, variable in dataset.variables.items():
            case.check(variable.to_numpy(), str(name))


class _Page(HTMLParser):
    """Links of a page; anything that is not ours is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        handlers = [name for name in known if name.startswith("on")]
        schemes = [
            v
            for v in known.values()
            if (v or "").strip().lower().startswith(("javascript:", "data:text"))
        ]
        if tag == "xss" or handlers or (schemes and tag == "a"):
            self.bad.append(f"<{tag} {attrs}>")
        if tag == "script" and "src" not in known and known.get("type") != "application/json":
            self.bad.append("<script>")
        if href := known.get("href"):
            self.links.append(href)


def _no_markup(text: str, where: str) -> list[str]:
    page = _Page()
    page.feed(text)
    if page.bad or "<script>alert" in text or "<xss" in text:
        raise BrokenError(f"{where}: markup of the name {page.bad}")
    return page.links


def _server(case: Case) -> None:
    with running(create_app({"a": str(case.catalog)}, access_log=False)) as url:
        with httpx.Client(timeout=_SECONDS) as client:
            _crawl(client, url)
        for view in ("portable", "native"):
            try:
                _walked(case, zarr.open_group(f"{url}/a/{view}", mode="r"), view)
            except Exception as error:
                if not is_told_by_http(error) and getattr(error, "status", 0) != _TOO_LONG:
                    raise


def _crawl(client: httpx.Client, url: str) -> None:
    """Everything that pages link to, as a browser and as a program asks for it."""
    waiting, seen = ["/", "/a", "/a/extent"], set()
    while waiting and len(seen) < 24:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        for accept in ("text/html", "*/*"):
            try:
                answer = client.get(url + path, headers={"Accept": accept})
            except httpx.InvalidURL:  # longer than the client takes
                continue
            if (
                answer.status_code >= 500
                and "gridref" not in answer.text
                and "html" not in answer.text
            ):
                raise BrokenError(f"{path}: {answer.status_code} {answer.text[:200]}")
            if "set-cookie" in answer.headers:
                raise BrokenError(f"{path}: a header of the name")
            kind = answer.headers.get("content-type", "")
            if kind.startswith("text/html"):
                links = [urljoin(url + path, link) for link in _no_markup(answer.text, path)]
                waiting += [link[len(url) :] for link in links if link.startswith(f"{url}/")]
            elif kind.startswith("application/json"):
                answer.json()


def _commands(case: Case) -> None:
    catalog, file = case.catalog, case.files[0]
    for words in (
        ["info", catalog], *(["list", catalog, table] for table in TABLES),
        ["export", catalog, "--to", "stac", "--datetime", "2000-01-01"],
        ["info", file], ["plan", *case.files], ["verify", catalog, "--all"],
        ["diff", catalog, catalog],
        ["list", catalog, "--sql", "SELECT * FROM arrays"],
        ["list", catalog, "--sql", "SELECT url FROM sources"],
        ["info", catalog, case.name], ["list", catalog, "chunks", case.name],
    ):  # fmt: skip
        if any("\0" in str(word) for word in words):
            continue
        where = f"gridref {words[0]}"
        code, printed = _run(*map(str, words))
        case.check_text(printed, where)
        if code not in (0, 1, 2):
            raise BrokenError(f"{where}: it ended with {code}: {printed[-200:]}")


class _Kept(io.BytesIO):
    def close(self) -> None:
        """Stay open: a command may close its output."""


def _run(*words: str) -> tuple[Any, str]:
    """A command in this process: how it ended, and all that it printed, as a terminal gets it."""
    before, streams = (sys.argv, sys.stdout, sys.stderr), _Kept()
    sys.argv = ["gridref", *words]
    sys.stdout = sys.stderr = io.TextIOWrapper(streams, encoding="utf-8", write_through=True)
    try:
        main_command()
        code: Any = 0
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    finally:
        with suppress(ValueError):
            sys.stdout.flush()
        sys.argv, sys.stdout, sys.stderr = before
    return code or 0, streams.getvalue().decode()


def _outputs(case: Case) -> dict[str, Callable[[Path], Any]]:
    catalog = case.catalog

    def kerchunk(path: Path, version: int = 2) -> None:
        write_references(to_kerchunk(gridref.open_catalog(catalog), zarr_format=version), str(path))
        _read_references(case, path, version)

    def icechunk(path: Path) -> None:
        to_icechunk(catalog, str(path))
        for array in gridref.scan(path).all_arrays().values():
            case.check(array[...], "icechunk")

    def publish(path: Path) -> None:
        publish_catalog(catalog, path, base_url="http://127.0.0.1/a",
                        prefixes={str(case.folder): "http://127.0.0.1/files"})  # fmt: skip
        for page in path.rglob("*.html"):
            _no_markup(page.read_text(), page.name)

    def aggregation(path: Path) -> None:
        gridref.interchange.to_cf_aggregation(catalog, path)
        for array in gridref.scan(path).all_arrays().values():
            case.check(array[...], "aggregation")

    return {
        "refs.json": kerchunk,
        "refs.parq": kerchunk,
        "v3.json": lambda path: kerchunk(path, 3),
        "a.icechunk": icechunk,
        "a.nc": aggregation,
        "site": publish,
    }


def _read_references(case: Case, path: Path, version: int) -> None:
    for array in gridref.scan(path).all_arrays().values():
        case.check(array[...], path.name)
    files = fsspec.filesystem("reference", fo=str(path), remote_protocol="file")
    names = [key for key in files.find("") if key.rpartition("/")[2] in (".zarray", "zarr.json")]
    arrays = gridref.open_catalog(case.catalog).all_arrays()
    if arrays and not names:
        raise BrokenError(f"{path.name}: nothing is in it")


def _exports(case: Case) -> None:
    """Each export writes below its own path only."""
    failed: list[GridrefError] = []
    for name, write in _outputs(case).items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                write(Path(folder, "out", name)) if Path(folder, "out").mkdir() is None else None
            except GridrefError as error:
                failed.append(error)
            beside = {*os.listdir(folder)} - {"out"} | {*os.listdir(f"{folder}/out")} - {name}
            if beside:
                raise BrokenError(f"{name}: written beside it: {beside}")


def _stac(case: Case) -> None:
    for kind in ("item", "collection"):
        document = gridref.interchange.to_stac(case.catalog, datetime="2000-01-01", kind=kind)
        json.loads(json.dumps(document, allow_nan=False))


def _virtual(case: Case) -> None:
    for number, file in enumerate(case.files):
        groups = [path for path, _ in gridref.scan(file).walk()]
        for group in groups:
            dataset = gridref.open_virtual_dataset(file, group=group or None, loadable_variables=())
            target = case.folder / f"virtual-{number}-{groups.index(group)}.gridref"
            if dataset.variables:
                dataset.gridref.save(target)
                of_file = Case(case.name, [file], case.folder, may_lack_chunks=case.may_lack_chunks)
                for path, array in gridref.open_catalog(target).all_arrays().items():
                    of_file.check(array[...], path)


def _changes(case: Case) -> None:
    copied = shutil.copytree(case.catalog, case.folder / "copied.gridref")
    group = gridref.open_catalog(copied)
    group.scan_values().tag("t").refresh()
    group = gridref.open_catalog(copied)
    group.chunks(), group.sources(), group.statistics(), group.history()
    gridref.open_catalog(copied).diff(case.catalog)
    for array in group.all_arrays().values():
        case.check(array[...], "changed")


DOORS: dict[str, Callable[[Case], None]] = {
    "own reader": _own, "engine": _engine, "stores": _stores, "filesystem": _filesystem,
    "server": _server, "commands": _commands, "exports": _exports, "STAC": _stac,
    "virtual": _virtual, "changes": _changes,
}  # fmt: skip
"""Ways in and out, by name."""


def try_name(role: str, name: str, folder: Path, doors: tuple[str, ...] = ()) -> dict[str, str]:
    """What came of a name in a role, by door: ``"shown"``, ``"refused: ..."``, or what broke."""
    files = make(role, name, folder)
    if files is None:
        return {}
    case = Case(name, files, folder, may_lack_chunks=role == "consolidated")
    outcome = _outcome(lambda _: _build(case), case)
    if outcome != "shown":
        return {"build": outcome}
    return {"build": "shown"} | {
        door: _outcome(DOORS[door], case) for door in (doors or tuple(DOORS))
    }


def _build(case: Case) -> None:
    where = case.name if len(case.files) > 1 else None
    gridref.build([str(file) for file in case.files], case.catalog, where)


def _outcome(use: Callable[[Case], None], case: Case) -> str:
    began = time.monotonic()
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            use(case)
        said = ""
        del warned
    except BrokenError as error:
        said = f"BROKE: {error}"
    except GridrefError as error:
        said = _judged_message(error)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
        said = f"BROKE: {type(error).__name__}: {error}"[:300]
    if time.monotonic() - began > _SECONDS:
        return f"BROKE: it took {time.monotonic() - began:.0f} s"
    return said or "shown"


def _judged_message(error: GridrefError) -> str:
    text = str(error)
    if len(text) > 6000:
        return f"BROKE: a message of {len(text)} characters: {text[:100]!r}"
    return f"refused: {text[:150]}"


@contextmanager
def _alone() -> Iterator[None]:
    """Nothing but the loopback device can be asked for."""
    import socket

    ask = socket.getaddrinfo

    def asked(host: Any, *rest: Any, **options: Any) -> Any:
        if host not in ("127.0.0.1", "localhost", "::1", None):
            raise OSError(f"{host} was asked for")
        return ask(host, *rest, **options)

    socket.getaddrinfo = asked
    try:
        yield
    finally:
        socket.getaddrinfo = ask


def main() -> int:
    """Try the roles that are named, or all, and print what broke."""
    chosen, n_tried, n_broke, n_refused = sys.argv[1:] or list(ROLES), 0, 0, 0
    for role in chosen:
        counts = {"names": 0, "shown": 0, "refused": 0, "broke": 0}
        for title, name in NAMES.items():
            if os.environ.get("CORE") and title in _LIKE_OTHERS:
                continue
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, _alone():
                found = try_name(role, name, Path(folder))
            counts["names"] += bool(found)
            for door, said in found.items():
                kind = "broke" if said.startswith("BROKE") else said.partition(":")[0]
                counts[kind] += 1
                if kind == "broke" or "-v" in os.environ.get("SHOW", ""):
                    print(f"{role} / {title} / {door}: {said}", flush=True)
        n_tried += sum(counts.values()) - counts["names"]
        n_broke += counts["broke"]
        n_refused += counts["refused"]
        print(f"{role}: {counts}", flush=True)
    print(f"{n_tried} tried, {n_refused} refused, {n_broke} broke")
    return int(n_broke > 0)


if __name__ == "__main__":
    sys.exit(main())
