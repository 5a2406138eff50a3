"""The table of clients: ``python -m tests.conformance.client_table`` writes ``docs/clients.md``."""

from __future__ import annotations

import importlib.metadata
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from gridref.api.catalog import write_catalog
from gridref.faces.http import create_app
from gridref.typing import ASGIApp, Receive, Scope, Send
from tests.conformance.cases import Case, all_cases
from tests.conformance.clients import THROUGH_FSSPEC, Client, all_clients
from tests.programs import WEB
from tests.uvicorn_server import running

VISITORS = """\
### Names and web pages

The server answers to the names `localhost`, its own address, and those of `--allow-host`, also
behind a proxy. Other names get 421, and a request without exactly one `Host` field gets 400.

Clients in web pages, like zarrita.js, can read only from pages of the server itself and from the
origins of `--allow-origin`. Otherwise, any page could read a server that its visitor can reach. `*`
allows all origins.

Names of arrays and groups become parts of addresses. zarr-python reads with fsspec's HTTP
filesystem, which cuts addresses at `#` and `?`, takes `%20` for a space, and drops line breaks and
tabs. The server therefore shows these characters, other control characters, and spaces at the ends
of names percent-encoded: the array `a?b` is `a%3Fb`. Clients may encode that name once more. In
every Zarr view a backslash is `%5C`, because zarr-python takes it for a slash.
"""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
SERVED: tuple[dict[str, Any], ...] = (
    {"grid": "regular"},
    {"grid": "regular", "shards": "auto"},
    {"grid": "rectilinear"},
    {"grid": "rectilinear", "shards": "blocks"},
)
REWRAPPED = "deflate"
"""The case whose stored chunks are shown as gzip, in another wrapper."""
REWRAPPING: dict[str, Any] = {
    "grid": "regular",
    "compressor": "gzip",
    "chunks": {"phony_dim_0": 10, "phony_dim_1": 6},
}
TRACED = "shuffled"
VERSION_LINE = "Versions: "

INTRODUCTION = """\
# Which client reads what

If you do not know which client will read, serve the `portable` view on a regular grid, without
shards: every client here reads it.

Each cell is a test. The client reads over HTTP from `gridref serve`, or without a server through
fsspec (`gridref::file://…`). The result is compared, bit for bit, with the original reader (h5py,
netCDF4, tifffile). `make clients` writes this page; the tests fail if it is out of date.

- **yes**: equal. **refuses**: the client raises an error, because it does not know this grid, codec
  or data type. No client ever returned anything else.
- `native` sends the stored bytes unchanged. `portable` decodes them on the way.
- `gzip` over stored zlib chunks is the stored data in another wrapper: nothing is compressed again.
- zarr-python, xarray and dask read rectilinear grids with
  `zarr.config.set({"array.rectilinear_chunks": True})`.
- icechunk keeps native chunks as virtual references. It takes no shards, because their bytes are in
  several pieces.
"""


@dataclass(frozen=True)
class Row:
    """One way in which an archive is shown."""

    case: Case
    options: dict[str, Any]
    view: str
    document: dict[str, Any]

    @property
    def label(self) -> str:
        """The first cells of the row."""
        codecs = self.document["codecs"]
        sharded = codecs[0]["name"] == "sharding_indexed"
        inner = codecs[0]["configuration"]["codecs"] if sharded else codecs
        names = " ".join(f"`{codec['name']}`" for codec in inner)
        grid = self.document["chunk_grid"]["name"]
        shards = "yes" if sharded else "no"
        return f"{self.case.description} | {self.view} | {grid} | {shards} | {names}"

    @property
    def filesystem_options(self) -> dict[str, Any]:
        """What shows the same through fsspec; the server's ``native`` is wherever it can be."""
        return {**self.options, "view": self.view}


@dataclass
class Recorder:
    """Notes the requests for chunks that pass through."""

    app: ASGIApp
    lines: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start" and "/c/" in scope.get("path", ""):
                asked = dict(scope["headers"]).get(b"range", b"").decode()
                key = scope["path"].split("/", 3)[3]
                line = f"{scope['method']} {key} {asked}".rstrip()
                self.lines.append(f"{line} -> {message['status']}")
            await send(message)

        await self.app(scope, receive, noting)


@dataclass(frozen=True)
class Results:
    """What became of every reading.

    Attributes
    ----------
    rows
        The ways in which archives were shown.
    cells
        By row and name of the client: ``"yes"``, ``"refuses"``, or ``"WRONG: ..."``.
    reasons
        Why clients refused.
    traces
        Requests of one chunk read by each client.
    """

    rows: list[Row]
    cells: dict[tuple[int, str], str]
    reasons: dict[tuple[int, str], str]
    traces: dict[str, list[str]]


def run(folder: Path) -> Results:
    """Have every client read every archive in every way."""
    cases = all_cases(folder)
    for case in cases:
        write_catalog(case.group, folder / f"{case.name}.gridref")
    results = Results([], {}, {}, {})
    seen: set[str] = set()
    with all_clients() as clients:
        for options in (*SERVED, REWRAPPING):
            shown = [c for c in cases if options is not REWRAPPING or c.name == REWRAPPED]
            recorder = Recorder(create_app({c.name: c.group for c in shown}, **options))
            with running(recorder) as url:
                for row in _rows(url, shown, options, seen):
                    _read_row(results, row, url, folder, clients)
                if options == {"grid": "regular", "shards": "auto"}:
                    _trace(results, url, clients, recorder)
    return results


def _rows(url: str, cases: list[Case], options: dict[str, Any], seen: set[str]) -> Iterator[Row]:
    for case in cases:
        for view in ("native", "portable"):
            document = httpx.get(f"{url}/{case.name}/{view}/{case.path}/zarr.json").json()
            shown = httpx.get(f"{url}/{case.name}").json()[view][case.path]["view"]
            mark = json.dumps([case.name, shown, document], sort_keys=True)
            if mark not in seen and shown == view:
                seen.add(mark)
                yield Row(case, options, view, document)


def _read_row(
    results: Results, row: Row, url: str, folder: Path, clients: tuple[Client, ...]
) -> None:
    number = len(results.rows)
    results.rows.append(row)
    served = (f"{url}/{row.case.name}/{row.view}", None)
    opened = (f"gridref::file://{folder}/{row.case.name}.gridref", row.filesystem_options)
    for client in clients:
        address, options = served if client.needs_server else opened
        try:
            values = client.read(address, row.case.path, None, options)
        except Exception as error:  # noqa: BLE001 (each client has errors of its own)
            results.cells[number, client.name] = "refuses"
            results.reasons[number, client.name] = f"{type(error).__name__}: {error}"
        else:
            results.cells[number, client.name] = _compared(values, row.case.values)


def _compared(values: Any, expected: Any) -> str:
    if values.shape != expected.shape:
        return f"WRONG: shape {values.shape}"
    if expected.dtype.kind == "O":
        return "yes" if values.tolist() == expected.tolist() else "WRONG"
    if values.dtype.newbyteorder("=") != expected.dtype:
        return f"WRONG: {values.dtype}"
    same = values.astype(expected.dtype).tobytes() == np.ascontiguousarray(expected).tobytes()
    return "yes" if same else "WRONG"


def _trace(results: Results, url: str, clients: tuple[Client, ...], recorder: Recorder) -> None:
    address = f"{url}/{TRACED}/portable"
    for client in clients:
        if client.sharded and client.needs_server:
            recorder.lines.clear()
            client.read(address, "v", (slice(0, 1), slice(0, 1)), None)
            results.traces[client.name] = list(recorder.lines)


def render(results: Results) -> str:
    """The page."""
    names = list(dict.fromkeys(name for _, name in results.cells))
    served = [name for name in names if not name.endswith(THROUGH_FSSPEC)]
    opened = [name for name in names if name.endswith(THROUGH_FSSPEC)]
    lines = [INTRODUCTION, _versions(), "", "## Over HTTP", "", *_table(results, served)]
    lines += ["", VISITORS, "## Through fsspec", "", *_table(results, opened)]
    lines += [
        "",
        "## Requests of one chunk read",
        "",
        "One element of an HDF5 array in an emulated shard (portable view), without metadata:",
        "",
    ]
    for name, trace in results.traces.items():
        lines += [f"{name}:", "", "```text", *trace, "```", ""]
    return "\n".join(lines)


def _table(results: Results, names: list[str]) -> list[str]:
    heads = " | ".join(name.removesuffix(THROUGH_FSSPEC) for name in names)
    lines = [f"| stored | view | grid | shards | codecs | {heads} |"]
    lines.append("|---" * (5 + len(names)) + "|")
    for number, row in enumerate(results.rows):
        cells = " | ".join(results.cells[number, name] for name in names)
        lines.append(f"| {row.label} | {cells} |")
    return lines


def _versions() -> str:
    packages = ("zarr", "xarray", "dask", "zarrs", "tensorstore", "rasterio")
    found = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    import rasterio

    zarrita = json.loads((WEB / "package.json").read_text())["devDependencies"]["zarrita"]
    return VERSION_LINE + ", ".join(
        [*found, f"GDAL {rasterio.__gdal_version__}", f"zarrita {zarrita}"]
    )


def without_versions(page: str) -> str:
    """The page as it is whatever the versions are."""
    return "\n".join(line for line in page.splitlines() if not line.startswith(VERSION_LINE))


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(render(run(Path(folder))))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
