"""Options of the commands, and messages that spell them as commands do.

Options that `gridref.build` takes in Python are defined here once, for all commands that have them.
An option that was not given is not passed on. Defaults, and the check of values, are those of the
classes of layouts, `CombineOptions`, `ScanOptions`, `RunOptions` and `ViewOptions`.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gridref.errors import GridrefError, InvalidRequestError, Message, Option
from gridref.options import Shown, check_choice, given_options, options_of
from gridref.secrets import without_secrets

if TYPE_CHECKING:
    from gridref.api.catalog import Catalog as OpenedCatalog
    from gridref.catalog.overlays import OverlayPolicy

# The options: their names, their help, and the meaning of their values

Files = Annotated[list[str], typer.Argument(help="Files, URLs, globs or directories.")]
SomeFiles = Annotated[list[str] | None, typer.Argument(help="Files, URLs, globs or directories.")]
Catalog = Annotated[str, typer.Argument(help="Address of a catalog: a path or URL.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-options",
        "-O",
        "--option",
        metavar="KEY=VALUE",
        help="Option of fsspec's filesystem; for one protocol only: s3.anon=true. Repeatable."
        " @FILE reads all of them from a JSON file, which keeps credentials off the command line.",
    ),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PREFIX",
        help="Allow a catalog or references to read files below this folder or URL; * allows"
        " everything. Repeatable. Their own folder is always allowed, and so is everything for"
        " catalogs that you built.",
    ),
]
Snapshot = Annotated[
    str | None, typer.Option(help="Id or tag of an earlier snapshot. Default: the current one.")
]
WhichOverlay = Annotated[
    str | None,
    typer.Option(
        "--overlay",
        metavar="N",
        help="Show the chunks of this overlay instead of those of the files, for arrays that it "
        "covers completely. none: use no overlay. check: ask servers whether files changed.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar.")]


def _option(kind: Any, help_text: str, *names: str, **settings: Any) -> Any:
    return kind, names, {"help": help_text, **settings}


def _panel(title: str | None, **options: Any) -> dict[str, Any]:
    """Options that help shows together: of `_option`, or the help of one that takes a text."""
    found = {}
    for name, option in options.items():
        kind, names, own = _option(str, option) if isinstance(option, str) else option
        if kind is bool:
            names = (f"--{name.replace('_', '-')}", *names)  # without an opposite
        found[name] = Annotated[kind | None, typer.Option(*names, rich_help_panel=title, **own)]
    return found


BUILD_OPTIONS: Mapping[str, Any] = {
    **_panel(
        "How files are laid out",
        concat_dim=_option(
            list[str],
            "Concatenate the files along this dimension, existing or new. Repeatable.",
            metavar="DIM",
        ),
        order="Order of files along one dimension. label: by their coordinate (default). given: "
        "as they are listed.",
        combine="by_coords: place files by their coordinates, in any order.",
        stack="Stack the files along this new dimension.",
        pattern="Find labels in file names: '{time:%Y%m%d}', or several: "
        "'{model}_{member:d}_{time:%Y%m}'. '{_sweep:d}' becomes a coordinate along the others. A "
        "pattern with a slash searches the whole address.",
        pattern_of="Search this attribute for the pattern instead of file names: TIFFTAG_DATETIME.",
        inventory=_option(
            str,
            "Read files and labels from a table: CSV, Parquet, JSON (intake-esm, STAC items, S3 "
            "Inventory).",
            metavar="TABLE",
        ),
        asset=_option(
            list[str],
            "Take this asset of each STAC item of --inventory or --files-from. Repeatable.",
            metavar="KEY",
        ),
        labels=_option(
            str,
            "Read labels from elsewhere: "
            "member=attribute:realization_index,run=variable:init,scenario=constant:historical. "
            "To join variables by labels in their names: "
            "'percentile=name:{variable}_p{percentile:d}'.",
            metavar="DIM=SOURCE,...",
        ),
        yes=_option(bool, "If several layouts are possible, take the first.", "-y"),
        resolve="If files differ and one option resolves that without loss. lossless: take and "
        "report it (default). ask: only show it.",
        group_by="Make a group for each kind of files: a field of the pattern, an attribute, or "
        "kind: by variables, dimensions and grid.",
        split="frequency: make a group for each spacing of times: daily, monthly...",
        mosaic=_option(bool, "Place the files by their georeferencing."),
        layout="Files of differing length (trajectories, profiles, swaths). ragged: all samples "
        "in sequence. padded: one row each. For microscopy, plate: wells and fields.",
        x="Dimension of the columns of a mosaic. Default: x.",
        y="Dimension of the rows of a mosaic. Default: y.",
        tolerance=_option(
            float,
            "How many pixels a file may be off the mosaic's grid. Default: 0.01.",
        ),
        grids="Tiles with several reference systems, resolutions or pixel grids. one: a problem. "
        "groups: a group for each.",
    ),
    **_panel(
        "How drift is resolved",
        join="Variables and labels that some files lack. exact: a problem (default). outer: fill "
        "with missing values. inner: leave out. Also left, right, override.",
        overlap="Labels or pixels in several files. raise: a problem (default). first, last: show "
        "one of them. keep: keep all labels.",
        variables="Variables without the dimension. minimal: keep one (default). different: "
        "repeat those that differ. all: repeat all.",
        repeated=_option(
            str,
            "The same rules for single variables: minimal, different, all.",
            metavar="NAME=RULE,...",
        ),
        compat="How to compare variables without the dimension. equals: compare values (default). "
        "override: take the first file's. Labels of dimensions are always compared.",
        combine_attrs="Attributes that differ. override: the first file's (default). "
        "drop_conflicts: leave out those that differ. drop: leave out all. no_conflicts, "
        "identical: a problem.",
        conflicts="Variables that do not fit together. raise: list every problem. skip: leave "
        "them out.",
        lossy=_option(bool, "Allow a common dtype that rounds some values."),
        convert_units=_option(bool, "Convert units that differ to those of the first file."),
        index_variables=_option(
            str,
            "Variables whose values count along a growing dimension, like count=obs.",
            metavar="NAME=DIM,...",
        ),
    ),
    **_panel(
        "Scanning",
        on_unsupported="Variables that cannot be served faithfully. raise: stop. skip: leave them "
        "out and report them.",
        phony_dims="How to number dimensions without a name: sort (as netCDF4), access (as "
        "h5netcdf).",
        max_chunk_bytes=_option(
            int,
            "Split contiguous data into chunks of at most this many bytes. Default: 4194304.",
        ),
        max_inline_bytes=_option(
            int,
            "Keep values of an array in the catalog up to this many bytes. Default: 16777216.",
        ),
        max_objects=_option(
            int,
            "Follow at most this many objects and links in a file. Default: 1000000.",
        ),
        index_files="What to take from .idx and .index files beside remote GRIB files. labels: "
        "the description of each message, checked when it is read (default). offsets: only where "
        "messages begin.",
        hints="dmrpp: read the DMR++ document beside each remote HDF5 file first, to find the "
        "metadata. This saves requests if it is spread over the file. Default: none.",
        parser=_option(
            str,
            "Scan with a parser of VirtualiZarr or a scanner of kerchunk instead: "
            "virtualizarr.parsers:NetCDF3Parser, kerchunk.grib2:GribToZarr.",
            metavar="MODULE:NAME",
        ),
        max_in_flight=_option(int, "Scan at most this many remote files at a time. Default: 64."),
        executor=_option(
            str,
            "What scans: a number of processes, or the address of a Dask scheduler like "
            "tcp://HOST:8786. Default: as many processes as are useful.",
            "--executor",
            "--jobs",
            metavar="N or ADDRESS",
        ),
        on_error="Files that cannot be scanned. raise: stop and list every failure. skip: leave "
        "the file out and report it.",
        max_errors=_option(int, "Stop at once after this many failures. Default: 100."),
        work="Keep results of scans in this folder, so that the next run scans only new files.",
    ),
    "allow": Allowed,
    **_panel(
        None,
        expect="Compare with a plan saved by gridref plan --json. If anything differs, list it "
        "and build nothing.",
        relative=_option(bool, "Record the addresses of files relative to the catalog."),
        overwrite=_option(
            bool,
            "Replace an existing catalog. Its history stays: see gridref rollback.",
        ),
        keep_secrets=_option(
            bool,
            "Keep credentials and signatures in addresses (user:password@, presigned queries).",
        ),
        identity="How reads check that a file is unchanged. strict: size and time or ETag. size: "
        "size only. content: a checksum of samples. content-all: a checksum of the whole file. "
        "Default: strict, or content with --relative.",
        checksums=_option(
            bool,
            "Compute a checksum of each stored chunk, and compare every later read with it.",
        ),
    ),
    "storage_options": StorageOptions,
}
"""Type of each option of `gridref.build` and `gridref.plan`, by the names that recipes have."""

OF_A_BUILD = ("resolve", "expect", "relative", "overwrite", "keep_secrets", "identity", "checksums")
"""Options that a catalog is built with once."""
OF_THE_CALL = ("storage_options", "allow", *OF_A_BUILD)
"""Those that are no part of a layout, nor of combining, scanning or running."""


def call_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the command line as `gridref.build` takes them.

    Raises
    ------
    InvalidRequestError
        For options of the layout that do not go together.
    """
    import gridref

    given = dict(options)
    own = {name: given.pop(name) for name in (*OF_THE_CALL, "concat_dim", "order") if name in given}
    kinds: dict[str, Any] = {
        "combine": gridref.CombineOptions,
        "scan": gridref.ScanOptions,
        "run": gridref.RunOptions,
    }
    for keyword, kind in kinds.items():
        if named := options_of(kind, given):
            own[keyword] = kind(**named)
            given = {name: value for name, value in given.items() if name not in named}
    given = {n: value for n, value in given.items() if value is not None and value is not False}
    layout = _layout(given)
    given.pop("yes", None)
    if given:
        others = Message.naming(given)
        if given.keys() <= {"x", "y", "tolerance", "grids"}:
            needed = Option("mosaic", True, "layout=Mosaic()")
            raise InvalidRequestError(Message(others, ": only for a mosaic (", needed, ")"))
        asked = "files along concat_dim" if layout is None else Option("layout", layout)
        raise InvalidRequestError(
            Message(others, " and ", asked, " belong to different layouts: leave one out")
        )
    return own if layout is None else {"layout": layout, **own}


def _layout(given: dict[str, Any]) -> Any:
    """The layout that is asked for; its options are taken out of those given."""
    import gridref

    def take(name: str) -> Any:
        return given.pop(name, None)

    def made(kind: Any, **own: Any) -> Any:
        """A layout; fields that are not given here are options of their own."""
        flags = {field.name: field.name for field in fields(kind)} | _NAMES.get(kind.__name__, {})
        asked = {name: take(flag) for name, flag in flags.items() if name not in own} | own
        return kind(**{n: v for n, v in asked.items() if v is not None and v is not False})

    by_more = any(given.get(n) is not None for n in ("pattern_of", "labels", "inventory", "asset"))
    labels: Any = made(gridref.Labels) if by_more else take("pattern")
    by, split = take("group_by"), take("split")
    if by is not None or split is not None:
        check_choice("split", split or "frequency", ("frequency",))
        each = _layout(given)
        return made(gridref.Groups, by=by, frequency=split is not None, labels=labels, each=each)
    kind = take("layout")
    if kind is not None:
        check_choice("layout", kind, ("ragged", "padded", "plate"))
        if kind == "plate":
            return made(gridref.Plate, labels=labels)
        return made(gridref.Ragged, padded=kind == "padded", labels=labels)
    if take("mosaic"):
        return made(gridref.Mosaic, labels=labels)
    if "stack" in given:
        return made(gridref.Stack, labels=labels)
    if labels is not None and given.get("combine") != "nested":
        take("combine")
        return gridref.Labels(labels) if isinstance(labels, str) else labels
    if labels is not None:
        raise InvalidRequestError(
            "nested lists of files take no labels: the nesting places the files"
        )
    return take("combine") or ("first" if take("yes") else None)


_NAMES: Mapping[str, dict[str, str]] = {
    "Labels": {"of": "pattern_of", "sources": "labels"},
    "Stack": {"dim": "stack"},
    "Ragged": {"instance": "stack"},
    "Groups": {"by": "group_by"},
}
"""By class of layout: fields that the command line calls otherwise."""
_ASKED: Mapping[str, Mapping[str, Any]] = {
    "Mosaic": {"mosaic": True},
    "Ragged": {"layout": "ragged"},
    "Plate": {"layout": "plate"},
}
"""By class of layout: the option that asks for it."""


def by_name(layout: Any) -> dict[str, Any]:
    """A layout as options of the command line: the opposite of `call_options`."""
    if isinstance(layout, str):
        return {"yes": True} if layout == "first" else {"combine": layout}
    if layout is None:
        return {}
    kind, given = type(layout).__name__, given_options(layout)
    labels, each = given.pop("labels", None), given.pop("each", None)
    asked = dict(_ASKED.get(kind, {}))
    if given.pop("padded", False):
        asked["layout"] = "padded"
    if given.pop("frequency", False):
        asked["split"] = "frequency"
    names = _NAMES.get(kind, {})
    own = {names.get(name, name): value for name, value in given.items() if value is not None}
    found = {"pattern": labels} if isinstance(labels, str) else by_name(labels)
    return {**asked, **own, **found, **by_name(each)}


SERVED_VIEW_OPTIONS: Mapping[str, Any] = {
    **_panel(
        "How arrays are shown",
        grid="Chunk grids to show: auto, regular, rectilinear.",
        chunks="Chunks of the portable view, like time=24,lat=180.",
        compressor="Compress chunks of the portable view with zstd or gzip.",
        shards="Show shards: blocks, auto, or lengths like time=120,lat=60.",
        index_location="Position of the index in a shard: start, end.",
    ),
    "storage_options": StorageOptions,
}
"""Type of each option of views that a server shows, which are all of them."""

VIEW_OPTIONS: Mapping[str, Any] = {
    **_panel(
        "How arrays are shown",
        view="How to show chunks: auto, native, portable, direct (in Python only).",
    ),
    **SERVED_VIEW_OPTIONS,
    "allow": Allowed,
}
"""Type of each option of `gridref.open_store` by its name in Python."""


EXPORT_OPTIONS: Mapping[str, Any] = {
    **_panel(
        None,
        inline_limit=_option(
            int,
            "Write arrays by value only up to this many bytes. Default: 1048576.",
        ),
    ),
    "storage_options": StorageOptions,
    **_panel(
        "Kerchunk references",
        zarr_format=_option(
            int,
            "Zarr format of references. 2 (default): opens with xarray's engine kerchunk. 3: "
            "allows uneven chunks.",
        ),
        inline_threshold=_option(int, "Write stored chunks of fewer bytes into the references."),
        templates=_option(bool, "Write each address of a file once, as a template."),
    ),
    **_panel(
        "Icechunk repositories",
        append_dim="Append the arrays to those of the repository along this dimension.",
        replace=_option(bool, "Replace the contents of the repository."),
        materialize=_option(
            list[str],
            "Write this array decoded; * for all that cannot be referenced. Repeatable.",
        ),
    ),
    **_panel(
        "CF aggregation",
        relative=_option(
            bool,
            "Record files relative to the aggregation file, so that both can move.",
        ),
    ),
    **_panel(
        "STAC",
        collection=_option(bool, "Write a Collection instead of an Item."),
        id="Id to write. Default: the name of the catalog.",
        references="Address of kerchunk references of the catalog.",
        served="URL at which gridref serve shows the catalog.",
        datetime="Time, or START/END, if no coordinate has it.",
    ),
    **_panel(
        "Forecasts",
        after="Take steps nearer than this from older runs: 12h.",
        offset="Take this step of every run: 24h.",
        run="Take one run: 2022-03-01T12:00, or latest.",
        name="Keep the cube, and add the forecast as a group of this name. OUTPUT may be the same "
        "catalog.",
        run_dim="Dimension of the runs.",
        step_dim="Dimension of the steps.",
    ),
}
"""Type of each option of `Catalog.export` by its name in Python."""


_REWRITING: Mapping[str, Any] = {
    **_panel(
        None,
        executor=_option(
            str,
            "Who writes: a number of processes, or the address of a Dask scheduler like "
            "tcp://HOST:8786. Each task may take --memory. Default: this process.",
            metavar="N or ADDRESS",
        ),
        memory=_option(str, "Memory that the process may take. Default: 1GB.", metavar="SIZE"),
        n_threads=_option(
            int, "Threads that decode and that encode. Default: one for each core.", "--threads"
        ),
        dry_run=_option(bool, "Only report what would be done."),
    ),
    "storage_options": StorageOptions,
}
"""Type of each option of calls that write values anew."""

COPY_OPTIONS: Mapping[str, Any] = {
    **_panel(
        None,
        to="zarr: a folder. icechunk: an Icechunk repository. Default: by the ending of TARGET.",
        arrays=_option(
            list[str],
            "Copy this array, and the coordinates that belong to it. Repeatable. Default: all.",
            "--array",
            metavar="PATH",
        ),
        chunks="Chunk lengths, like time=-1,lat=20; -1: the whole dimension. Default: like those "
        "in the files.",
        shards="auto: put chunks together in shards of up to 128 MiB (default). none. Or lengths, "
        "like time=120,lat=60.",
        codec="blosc (default), blosc-lz4, zstd, gzip, none: for all readers. shuffle-zstd: "
        "smaller, for gridref, zarr-python and zarrs.",
        grid="regular: equal chunks (default). rectilinear: as uneven as in the files; few "
        "readers read it.",
        spill=_option(
            str,
            "Folder for intermediate files. They are used if --memory is too little to decode "
            "each stored chunk only once. Default: in the target, if that is local.",
            metavar="FOLDER",
        ),
    ),
    **_REWRITING,
}
"""Type of each option of `gridref.copy` by its name in Python."""

_BESIDE = _panel(
    None,
    to="Folder or URL to write to. Default: overlays in the catalog.",
    codec="shuffle-zstd (default); or blosc, zstd, gzip, none: for all Zarr readers.",
)

RECHUNK_OPTIONS: Mapping[str, Any] = {
    **_panel(
        None,
        where=_option(
            list[str],
            "Only these labels: lat=40:60, time=2020-01-01/2020-12-31. Repeatable.",
            metavar="DIM=FIRST:LAST",
        ),
    ),
    **_BESIDE,
    **_REWRITING,
}
"""Type of each option of `Catalog.rechunk` by its name in Python, but for chunks and shards."""

OVERVIEW_OPTIONS: Mapping[str, Any] = {
    **_panel(
        None,
        factor=_option(int, "How much coarser each level is than the one before. Default: 2."),
        levels=_option(int, "Number of levels. Default: until no side is longer than 512."),
        method="mean (default), min, max, mode or nearest.",
    ),
    **_BESIDE,
    **{name: kind for name, kind in _REWRITING.items() if name != "executor"},
}
"""Type of each option of `Catalog.overviews` by its name in Python."""


def takes(options: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options for its ``**`` parameter, which gets those that were given, parsed.

    Parameters
    ----------
    options
        Types by name, like `BUILD_OPTIONS`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**given: Any) -> None:
            asked = {name: given.pop(name) for name in options}
            command(
                **given,
                **{
                    name: _parsed(name, value)
                    for name, value in asked.items()
                    if value is not None and value != []
                },
            )

        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in options.items()
        ]
        as_keywords = [p.replace(kind=p.KEYWORD_ONLY) for p in own]
        call.__signature__ = signature.replace(parameters=[*as_keywords, *added])  # type: ignore[attr-defined]
        return call

    return decorate


def _parsed(name: str, value: Any) -> Any:
    """What was written for an option, as Python takes it."""
    if name == "concat_dim":
        return value[0] if len(value) == 1 else value
    if name == "repeated":
        return _pairs(value, "mask=all,area=minimal")
    if name == "labels":
        return _pairs(value, "member=attribute:realization_index")
    if name == "index_variables":
        return _pairs(value, "count=obs,start=obs")
    if name == "executor":
        return int(value) if value.isdecimal() else value
    if name == "chunks":
        return parse_lengths(value)
    if name == "shards":
        return parse_shards(value)
    if name == "where":
        return dict(map(parse_bounds, value))
    if name == "materialize":
        return True if value == ["*"] else value
    return parse_options(value) if name == "storage_options" else value


def parse_options(entries: list[str] | None) -> dict[str, Any]:
    """Fsspec options from ``key=value`` entries; true, false and numbers are read as such.

    ``@FILE`` stands for the JSON object in a file. Credentials in it are read again when a server
    refuses them.

    A dot in a key makes options inside options: ``s3.anon=true``, which also is how the options of
    one protocol are written.
    """
    options: dict[str, Any] = {}
    for entry in entries or []:
        if entry.startswith("@"):
            options |= _options_file(entry[1:])
            continue
        key, separator, text = entry.partition("=")
        *outer, name = key.split(".")
        if not separator or not all((*outer, name)):
            raise InvalidRequestError(
                "--storage-options is written KEY=VALUE or @FILE; one of them is not"
            )
        inner = options
        for part in outer:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InvalidRequestError(
                    f"--storage-options gives {part} both a value and options of its own"
                )
        inner[name] = _value(text)
    return options


def overlay_of(text: str | None) -> OverlayPolicy:
    """Which overlays reads may use, as it is written: a number, or one of the words."""
    from gridref.catalog.overlays import policy_of

    return "auto" if text is None else policy_of(text)


def opened_catalog(
    catalog: str,
    storage_options: list[str] | None,
    allow: list[str] | None = None,
    snapshot: str | None = None,
) -> OpenedCatalog:
    """The catalog that a command is for."""
    from gridref.api.catalog import open_catalog

    options = parse_options(storage_options)
    return open_catalog(catalog, storage_options=options, allow=allow or None, snapshot=snapshot)


_CREDENTIALS = {"key", "secret", "token", "headers", "params", "sas_token"}
_RENEWED = ("s3", "http", "catalog")
"""Beginnings of the names whose credentials are read again from a file."""


@dataclass(frozen=True)
class CredentialsFile:
    """Reads the credentials of one filesystem from a JSON file of options.

    Attributes
    ----------
    name
        The protocol, or beginning of addresses, that they are for; None if the file is for one
        filesystem.
    """

    path: str
    name: str | None = None

    def __call__(self) -> dict[str, Any]:
        options = _json_of(self.path)
        if self.name is not None:
            options = options.get(self.name, {})
        return {k: v for k, v in options.items() if k in {*_CREDENTIALS, "expires_at"}}


def _options_file(path: str) -> dict[str, Any]:
    """Options from a file, which is read again when a server refuses the credentials in it."""
    options = _json_of(path)
    if options.keys() & _CREDENTIALS:
        return {**options, "credential_provider": CredentialsFile(path)}
    for name, held in options.items():
        if isinstance(held, dict) and held.keys() & _CREDENTIALS and name.startswith(_RENEWED):
            options[name] = {**held, "credential_provider": CredentialsFile(path, name)}
    return options


def _json_of(path: str) -> dict[str, Any]:
    try:
        options = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"--storage-options @{path} cannot be read: {error}") from None
    if not isinstance(options, dict):
        raise InvalidRequestError(f"--storage-options @{path} is not a JSON object")
    return options


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    return words.get(text.lower(), int(text) if text.isdecimal() else text)


def parse_shards(text: str | None) -> str | dict[str, int] | None:
    """What ``--shards`` means: a word, or lengths by dimension."""
    return text if text is None or "=" not in text else parse_lengths(text)


def parse_lengths(text: str) -> dict[str, int]:
    """Lengths by dimension out of ``time=24,lat=180``."""
    lengths = {}
    for dim, length in _pairs(text, "time=24,lat=180").items():
        if not length.removeprefix("-").isdecimal():
            raise InvalidRequestError(f"lengths are written like time=24,lat=180, got {text!r}")
        lengths[dim] = int(length)
    return lengths


def _pairs(text: str, example: str) -> dict[str, str]:
    """Names and what stands behind them."""
    pairs = {}
    for part in text.split(","):
        name, separator, value = part.strip().rpartition("=")
        if not separator or not name or not value:
            raise InvalidRequestError(f"write it like {example}, got {text!r}")
        pairs[name] = value
    return pairs


def parse_bounds(text: str) -> tuple[str, slice]:
    """A dimension, and its first and last label, out of ``lat=40:60`` or ``time=2020/2021``."""
    dim, separator, labels = text.partition("=")
    first, between, last = labels.partition("/" if "/" in labels else ":")
    if not (dim and separator and between) or ":" in last:
        raise InvalidRequestError(
            f"labels are written like lat=40:60 or time=2020-01-01/2020-12-31, got {text!r}"
        )
    return dim, slice(_label(first), _label(last))


def _label(text: str) -> int | float | str | None:
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return text or None


def parse_selection(text: str) -> dict[str, int | slice]:
    """Positions by dimension out of ``time=:,lat=7,lon=0:9``."""
    selection: dict[str, int | slice] = {}
    for dim, places in _pairs(text, "time=:,lat=7,lon=0:9").items():
        bounds = [int(part) if part else None for part in places.split(":") if _is_place(part)]
        if len(bounds) != places.count(":") + 1 or len(bounds) > 3 or bounds == [None]:
            raise InvalidRequestError(f"positions are written like lat=7 or lat=0:9, got {text!r}")
        selection[dim] = slice(*bounds) if len(bounds) > 1 else bounds[0] or 0
    return selection


def _is_place(text: str) -> bool:
    return not text or text.removeprefix("-").isdecimal()


# Options that name files by a list

FilesFrom = Annotated[
    str | None,
    typer.Option(
        "--files-from",
        metavar="FILE",
        help="Also read files from a list: text with one file a line (- is standard input), CSV,"
        " Parquet, the manifest of an S3 Inventory, or STAC items (.json, .parquet).",
    ),
]
Match = Annotated[
    str | None,
    typer.Option(
        "--match", metavar="GLOB", help="Keep only listed files that match: '*/2020/*.nc'."
    ),
]


def all_files(
    files: list[str] | None,
    files_from: str | None,
    match: str | None,
    options: dict[str, Any],
) -> list[str]:
    """The files of a command line, and those of a list; empty lines of that are left out.

    With an inventory, there may be none. An asset is that of the list where there is one.
    """
    inventory = options.get("inventory")
    listed: list[str] = []
    if files_from is not None:
        asset = options.get("asset") if inventory else options.pop("asset", None)
        listed = _listed(files_from, asset, match, options.get("storage_options"))
    elif match is not None:
        raise InvalidRequestError(
            "--match selects from a list of files: give the list with --files-from FILE"
        )
    found = [*(files or []), *listed]
    if not found and inventory is None:
        raise InvalidRequestError(
            "no files given: name files, or give a list with --files-from FILE"
        )
    return found


def _listed(
    listing: str, asset: list[str] | None, match: str | None, storage_options: Any
) -> list[str]:
    from gridref.api.layout.listings import files_from

    try:
        if listing != "-":
            return files_from(listing, asset=asset, match=match, storage_options=storage_options)
        text = sys.stdin.read().removeprefix("\ufeff")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
    except (InvalidRequestError, OSError) as error:
        told = error.message if isinstance(error, GridrefError) else str(error)
        raise InvalidRequestError(Message(f"--files-from {listing}: ", told)) from error
    return [line for line in lines if match is None or fnmatchcase(line, match)]


# Options that say where sources are now

FROM = typer.Option(
    "--from",
    metavar="PREFIX",
    help="Former folder or URL of sources. Repeatable, each with a --to.",
)
TO = typer.Option("--to", metavar="PREFIX", help="Present folder or URL of the same sources.")


def prefixes_of(before: list[str], after: list[str]) -> dict[str, str]:
    """Present locations of sources by former ones, out of pairs of ``--from`` and ``--to``."""
    if len(before) != len(after):
        raise InvalidRequestError(f"{len(before)} --from, and {len(after)} --to: give one for each")
    return dict(zip(before, after, strict=True))


# Options that messages name, as they are written here

_OF_COMMANDS = ("all", "at", "events", "format", "from", "identity", "keep", "max_in_flight",
                "output", "overlay", "select", "snapshot", "to", "vanished", "where")  # fmt: skip
_TABLES = (
    BUILD_OPTIONS,
    VIEW_OPTIONS,
    EXPORT_OPTIONS,
    COPY_OPTIONS,
    RECHUNK_OPTIONS,
    OVERVIEW_OPTIONS,
)
_KNOWN = {*_OF_COMMANDS, *(name for table in _TABLES for name in table)}
"""Options of commands. Others exist in Python only, and are written as there."""
_NAMED_LAYOUTS = ("by_coords", "first")


def spelled(message: str) -> str:
    """A message with options as on the command line: ``overlap='first'`` is ``--overlap first``."""
    if not isinstance(message, Message):
        return message
    parts: list[str] = []
    after_option = False
    for part, following in zip_longest(message.parts, message.parts[1:]):
        between = part == ", " and after_option and isinstance(following, Option)
        after_option = isinstance(part, Option)
        parts.append(" " if between else _written(part) if isinstance(part, Option) else part)
    return without_secrets("".join(parts))


def _written(option: Option) -> str:
    name, value = option.name, option.value
    if isinstance(value, Shown) or (name == "layout" and value in _NAMED_LAYOUTS):
        flat = by_name(value) if name == "layout" else given_options(value)
        return " ".join(_written(Option(each, asked)) for each, asked in flat.items())
    if name not in _KNOWN or (name, value) == ("layout", "nested"):
        return str(option)
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return flag
    if isinstance(value, Mapping):
        value = ",".join(f"{key}={each}" for key, each in value.items())
    several = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{flag} {'...' if each is ... else each}" for each in several)
