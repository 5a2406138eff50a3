"""The layouts of several files, as people ask for them: one class for each way.

A layout has two spellings. Python takes objects, `Stack("time")` or `Mosaic(...)`, of which each
has only the options that go together. The command line, and the recipe that a catalog keeps, have
an option for each field, `--stack time`. `flat_options` turns the first into the second,
`keywords_of` the second into the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from gridref.api.layout.joined_variables import split_labels
from gridref.api.layout.layouts import Layout
from gridref.api.layout.sources import LabelSource
from gridref.api.outcomes import RunOptions
from gridref.combine import CombineOptions, MosaicOptions
from gridref.errors import InvalidRequestError
from gridref.formats import ScanOptions
from gridref.options import Shown, given_options, near_names, options_of, refuses_unknown


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Labels(Shown):
    """Where the labels of files come from. As a layout: files lie where their labels say.

    Attributes
    ----------
    pattern
        Where labels stand in file names, like ``{time:%Y%m%d}`` or
        ``{model}_{member:d}_{time:%Y%m}.nc``; see `gridref.api.layout.labels.LabelPattern`. The
        fields are dimensions of the result; ``{_sweep:d}`` is a coordinate along them. Text that
        ``{_}`` skips becomes such a coordinate if several files share it. If the files have a
        coordinate of the dimension, it is kept. `Stack` and `Mosaic` replace it, and the report
        lists both values.
    of
        Attribute of the files in which the pattern finds labels, like ``TIFFTAG_DATETIME``. By
        default it searches their names.
    sources
        Sources of labels other than file names: for each dimension ``"attribute:NAME"``,
        ``"variable:NAME"`` (a scalar), ``"constant:VALUE"``, ``"column:NAME"`` of the inventory or
        a function of the address; or one function that returns a label for each dimension.
        ``"name:{variable}_p{percentile:d}"`` finds labels in names of variables. These variables
        become one along the dimension before files are laid out. Numbers, and times and durations
        of ISO 8601, are converted from text.
    inventory
        A table that lists the files and their labels: a data frame, a CSV file, a Parquet file like
        stac-geoparquet's, or the JSON document of an intake-esm collection, a STAC item collection
        or an S3 Inventory. Columns with the names of dimensions hold their labels. Without other
        files (``files=[]``), all of the table are taken.
    asset
        Keys of the assets to take from each STAC item of the inventory; by default ``"data"``, or
        the only one. The column ``asset`` holds the key of each file.

    Raises
    ------
    InvalidRequestError
        For unknown sources, `of` without a pattern, or `asset` without an inventory.
    """

    pattern: str | None = None
    of: str | None = None
    sources: Mapping[str, LabelSource] | Callable[[str], Mapping[str, Any]] | None = None
    inventory: Any = field(default=None, hash=False)
    asset: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        _check(self.flat)

    @property
    def flat(self) -> dict[str, Any]:
        """The same as fields of `Layout`."""
        names = {"of": "pattern_of", "sources": "labels"}
        return {names.get(name, name): value for name, value in given_options(self).items()}


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Stack(Shown):
    """Files lie one behind the other along a new dimension.

    Attributes
    ----------
    dim
        Name of the new dimension.
    labels
        Labels of the dimension, which also say the order of the files. A text is a pattern of their
        names.
    """

    dim: str
    labels: Labels | str | None = None

    def __post_init__(self) -> None:
        _check(self.flat)

    @property
    def flat(self) -> dict[str, Any]:
        """The same as fields of `Layout`."""
        return {"stack": self.dim, **_labels(self.labels)}


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Mosaic(Shown):
    """Files lie where their georeferencing says.

    Attributes
    ----------
    labels
        Labels, like a date or a band, that give a mosaic each. A text is a pattern of names; its
        field ``{variable}`` is the name of a file's variable.
    stack
        Which field of the pattern is the first dimension.
    x, y
        Names of the dimensions of columns and rows.
    tolerance
        How far, in pixels, a file may be off the grid of the first one.
    grids
        Files of several coordinate reference systems, resolutions or pixel grids: ``"one"`` makes
        them a problem, ``"groups"`` lays out the files of each grid in a group of its own.

    Raises
    ------
    InvalidRequestError
        For a tolerance below 0 or above half a pixel, where places become ambiguous.
    """

    labels: Labels | str | None = None
    stack: str | None = None
    x: str = "x"
    y: str = "y"
    tolerance: float = 0.01
    grids: Literal["one", "groups"] = "one"

    def __post_init__(self) -> None:
        _check(self.flat)

    @property
    def flat(self) -> dict[str, Any]:
        """The same as fields of `Layout` and `MosaicOptions`."""
        given = {name: value for name, value in given_options(self).items() if name != "labels"}
        return {"mosaic": True, **given, **_labels(self.labels)}


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Ragged(Shown):
    """Trajectories, profiles or swaths of differing length: all samples one after the other.

    A variable ``row_size`` holds the number of samples of each file (CF conventions, 9.3.3).
    `concat_dim` names the dimension whose length differs; by default it is found.

    Attributes
    ----------
    instance
        Dimension that counts the files; by default it is found.
    padded
        Give each file a row instead, as long as the longest.
    labels
        Labels of the files. A text is a pattern of their names.
    """

    instance: str | None = None
    padded: bool = False
    labels: Labels | str | None = None

    def __post_init__(self) -> None:
        _check(self.flat)

    @property
    def flat(self) -> dict[str, Any]:
        """The same as fields of `Layout`."""
        instance = {} if self.instance is None else {"stack": self.instance}
        layout = "padded" if self.padded else "ragged"
        return {"layout": layout, **instance, **_labels(self.labels)}


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Plate(Shown):
    """Microscopy images lie by wells and fields, as in OME-Zarr.

    Attributes
    ----------
    labels
        A pattern of file names with the fields ``{well}`` (or ``{row}`` and ``{column}``) and
        ``{field}``; other fields, like ``{c}`` and ``{z}``, are dimensions of the images. Without
        one the usual forms of names are known.
    """

    labels: Labels | str | None = None

    def __post_init__(self) -> None:
        _check(self.flat)

    @property
    def flat(self) -> dict[str, Any]:
        """The same as fields of `Layout`."""
        return {"layout": "plate", **_labels(self.labels)}


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Groups(Shown):
    """Files of each kind lie by themselves, in a group of that name.

    Attributes
    ----------
    by
        What tells the kinds apart: a field of the pattern of `labels`, or an attribute of the
        files.
    frequency
        Tell files apart by their frequency: the attribute ``frequency``, or the spacing of the
        times (``daily``, ``monthly``, ``6hourly``; ``fixed`` without times).
    labels
        Labels of the files. A text is a pattern of their names.
    each
        Layout within each kind. By default it is found.

    Raises
    ------
    InvalidRequestError
        If nothing tells the kinds apart.
    """

    by: str | None = None
    frequency: bool = False
    labels: Labels | str | None = None
    each: AnyLayout | None = None

    def __post_init__(self) -> None:
        if self.by is None and not self.frequency:
            raise InvalidRequestError(
                "Groups() needs what tells files apart: an attribute or a field of names"
                " (Groups('model')), or Groups(frequency=True)"
            )
        _check(self.flat)

    @property
    def flat(self) -> dict[str, Any]:
        """The same as fields of `Layout`."""
        by = {} if self.by is None else {"group_by": self.by}
        split = {"split": "frequency"} if self.frequency else {}
        return {**by, **split, **_labels(self.labels), **_flat_layout(self.each)}


type LayoutName = Literal["by_coords", "nested", "first"]
"""Layouts without options. ``"by_coords"``: files lie where their coordinates say, along
`concat_dim` or, if that is
None, along each dimension whose coordinates differ; files with different variables are merged.
``"nested"``: lists of lists of files in the given order, the outermost along the first of several
dimensions. ``"first"``: the first of the layouts that the files may have."""
type AnyLayout = Labels | Stack | Mosaic | Ragged | Plate | Groups | LayoutName

_NAMED: Mapping[str, Mapping[str, Any]] = {
    "by_coords": {"combine": "by_coords"},
    "nested": {"combine": "nested"},
    "first": {"yes": True},
}


def _check(flat: Mapping[str, Any]) -> None:
    """Check options that belong to a layout."""
    labels, _ = split_labels(flat.get("labels"))
    Layout(**{**options_of(Layout, flat), "labels": labels})
    MosaicOptions(**options_of(MosaicOptions, flat))


def _labels(labels: Labels | str | None) -> dict[str, Any]:
    if isinstance(labels, str):
        return {"pattern": labels}
    return {} if labels is None else labels.flat


def _flat_layout(layout: AnyLayout | None) -> dict[str, Any]:
    if layout is None:
        return {}
    if not isinstance(layout, str):
        return layout.flat
    if layout not in _NAMED:
        raise InvalidRequestError(
            f"there is no layout {layout!r}{near_names(layout, _NAMED)}, or take one of"
            " Labels(...), Stack(...), Mosaic(...), Ragged(...), Plate(...), Groups(...)"
        )
    return dict(_NAMED[layout])


def flat_options(
    concat_dim: str | Sequence[str] | None = None,
    order: Literal["label", "given"] = "label",
    layout: AnyLayout | None = None,
    combine: CombineOptions | None = None,
    scan: ScanOptions | None = None,
    run: RunOptions | None = None,
) -> dict[str, Any]:
    """All options of a call by name, as recipes keep them; those at their defaults are left out.

    Raises
    ------
    InvalidRequestError
        For a layout without a class that has no such name.
    """
    flat = {} if concat_dim is None else {"concat_dim": concat_dim}
    flat |= {} if order == "label" else {"order": order}
    flat |= _flat_layout(layout)
    for name, each in (("combine", combine), ("scan", scan), ("run", run)):
        kind = _KINDS[name]
        if each is not None and not isinstance(each, kind):
            hint = f": layout={each!r}" if str(each) in _NAMED else ""
            raise InvalidRequestError(
                f"{name} must be {kind.__name__}(...) or None, got {each!r}{hint}"
            )
        flat |= {} if each is None else given_options(each)
    return flat


_KINDS: Mapping[str, Any] = {
    "combine": CombineOptions,
    "scan": ScanOptions,
    "run": RunOptions,
}
_OF_LABELS = ("pattern", "pattern_of", "labels", "inventory", "asset")


def keywords_of(flat: Mapping[str, Any]) -> dict[str, Any]:
    """What `build` and `plan` take for options by name: the opposite of `flat_options`.

    Raises
    ------
    InvalidRequestError
        For options that do not go together.
    """
    given = dict(flat)
    _check(given)
    places = options_of(MosaicOptions, given)
    if places and not given.get("mosaic"):
        raise InvalidRequestError(
            f"{', '.join(places)}: only for files laid out as a mosaic (layout=Mosaic())"
        )
    layout = _layout_of(given)
    keywords: dict[str, Any] = {
        name: given[name] for name in ("concat_dim", "order") if name in given
    }
    if layout is not None:
        keywords["layout"] = layout
    for name, kind in _KINDS.items():
        if options := options_of(kind, given):
            keywords[name] = kind(**options)
    return keywords


def _layout_of(flat: Mapping[str, Any]) -> AnyLayout | None:
    """The layout out of fields of `Layout` and `MosaicOptions`, which go together."""
    given = {
        name: value for name, value in flat.items() if value is not None and value is not False
    }
    names = {"pattern_of": "of", "labels": "sources"}
    found = {names.get(name, name): given[name] for name in _OF_LABELS if name in given}
    labels: Labels | str | None = Labels(**found) if found else None
    if found.keys() == {"pattern"}:
        labels = str(found["pattern"])
    if given.keys() & {"group_by", "split"}:
        of_kinds = ("group_by", "split", *_OF_LABELS)
        each = _layout_of({name: value for name, value in given.items() if name not in of_kinds})
        return Groups(given.get("group_by"), "split" in given, labels, each)
    if given.get("layout") == "plate":
        return Plate(labels)
    if "layout" in given:
        return Ragged(given.get("stack"), given["layout"] == "padded", labels)
    if "mosaic" in given:
        return Mosaic(labels, given.get("stack"), **options_of(MosaicOptions, given))
    if "stack" in given:
        return Stack(given["stack"], labels)
    if labels is not None:
        return Labels(labels) if isinstance(labels, str) else labels
    return given.get("combine") or ("first" if "yes" in given else None)


def _by_class() -> dict[str, str]:
    """How each option of a recipe is written in a call of `build`."""
    written = {
        "stack": "layout=Stack('time')",
        "mosaic": "layout=Mosaic()",
        "pattern": "layout=Labels('{time:%Y%m%d}.nc')",
        "pattern_of": "layout=Labels(pattern, of=...)",
        "labels": "layout=Labels(sources=...)",
        "inventory": "layout=Labels(inventory=...)",
        "asset": "layout=Labels(inventory=..., asset=...)",
        "yes": "layout='first'",
        "group_by": "layout=Groups(...)",
        "split": "layout=Groups(frequency=True)",
        "x": "layout=Mosaic(x=...)",
        "y": "layout=Mosaic(y=...)",
        "tolerance": "layout=Mosaic(tolerance=...)",
        "grids": "layout=Mosaic(grids=...)",
        "checksum": "identity='content-all'",
    }
    for keyword, kind in _KINDS.items():
        for each in fields(kind):
            written[each.name] = f"{keyword}={kind.__name__}({each.name}=...)"
    return written


ELSEWHERE: Mapping[str, str] = _by_class()
"""For errors about options that a call does not take by themselves."""


def spelled(flat: Mapping[str, Any]) -> str:
    """Options by name as they are written in a call of `build`."""
    return ", ".join(f"{name}={value!r}" for name, value in keywords_of(flat).items())
