"""Arrays put behind what is in an Icechunk repository, along a dimension.

The references of before stay as they are: only those of the new chunks are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import icechunk
import numpy as np
import zarr
from numpy.typing import NDArray

from gridref.adapters.icechunk.arrays import put_array
from gridref.adapters.icechunk.planning import WritePlan
from gridref.adapters.icechunk.sessions import get_document, put_document
from gridref.adapters.references import refuse
from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.zarr_metadata import ArrayMetadata
from gridref.serve.views import ArrayView

__all__ = ["append"]

_MEANING = (
    *("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value"),
    *("_Unsigned", "flag_values", "flag_masks"),
)
"""Attributes that say what stored values mean."""

type Action = Callable[[], None]


def append(
    store: icechunk.IcechunkStore, plan: WritePlan, append_dim: str, inline_limit: int
) -> None:
    """Put the arrays of a plan behind those in a session.

    All is checked before anything is written.

    Raises
    ------
    NotRepresentableError
        Naming every array that cannot be appended, and why.
    InvalidRequestError
        If no array has the dimension.
    """
    views = plan.space.views()
    if not any(append_dim in view.array.dims for view in views.values()):
        raise InvalidRequestError(f"no array has a dimension {append_dim}")
    reasons = dict.fromkeys(
        _paths_along(store, append_dim) - views.keys(), "it is in the repository only"
    )
    actions: list[Action] = []
    for path, view in views.items():
        try:
            held = _held(store, path)
            if append_dim in view.array.dims:
                actions.append(_Appended(store, plan, path, inline_limit).action(held, append_dim))
            else:
                _check_same(store, path, view, held, plan)
        except NotRepresentableError as error:
            reasons[path] = error.reason
    refuse(f"an append along {append_dim}", reasons, "write the whole anew with replace=True")
    for act in actions:
        act()


def _paths_along(store: icechunk.IcechunkStore, dim: str) -> set[str]:
    """Paths of the arrays in a session that have a dimension."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        members = zarr.open_group(store, mode="r").members(max_depth=None)
        return {
            path
            for path, node in members
            if isinstance(node, zarr.Array) and dim in (node.metadata.dimension_names or ())  # type: ignore[union-attr]
        }


def _held(store: icechunk.IcechunkStore, path: str) -> ArrayMetadata:
    document = get_document(store, path)
    if document is None or document.get("node_type") != "array":
        raise NotRepresentableError("it is not in the repository")
    return ArrayMetadata.from_json(document)


class _Appended:
    """One array, and how it is put behind another one."""

    def __init__(
        self, store: icechunk.IcechunkStore, plan: WritePlan, path: str, inline_limit: int
    ) -> None:
        self.store, self.plan, self.path = store, plan, path
        self.inline_limit = inline_limit
        view = plan.space.array_view(path)
        assert view is not None
        self.view: ArrayView = view

    def action(self, held: ArrayMetadata, dim: str) -> Action:
        """What is to be done; nothing is written yet."""
        axis = self.view.array.dims.index(dim)
        check_alike(held, self.view.metadata, axis)
        try:
            return self._referenced(held, axis)
        except NotRepresentableError:
            if self.path not in self.plan.decodable or not held.grid.is_regular:
                raise
        return lambda: self._put_values(held.grid.shape[axis], axis)

    def _referenced(self, held: ArrayMetadata, axis: int) -> Action:
        """Chunks put behind those of before, which stay as they are."""
        new = self.view.metadata
        if held.codecs != new.codecs:
            raise NotRepresentableError("its chunks are encoded in another way")
        grid = joined_grid(held.grid, new.grid, axis)
        offset = [0] * grid.ndim
        offset[axis] = held.grid.axes[axis].n_chunks

        def put() -> None:
            document = get_document(self.store, self.path) or {}
            joined = replace(held, grid=grid).to_json()
            changed = {name: joined[name] for name in ("shape", "chunk_grid")}
            put_document(self.store, self.path, {**document, **changed})
            put_array(self.store, self.plan, self.path, self.inline_limit, offset)

        return put

    def _put_values(self, start: int, axis: int) -> None:
        """Values put behind those of before: a chunk that both share is written anew."""
        values = self.plan.reader.reader.read(self.view.array, name=self.path)
        array = zarr.open_array(self.store, path=self.path, mode="r+")
        shape = list(array.shape)
        shape[axis] = start + values.shape[axis]
        array.resize(tuple(shape))
        region = [slice(None)] * len(shape)
        region[axis] = slice(start, None)
        array[tuple(region)] = values


def joined_grid(before: ChunkGrid, new: ChunkGrid, axis: int) -> ChunkGrid:
    """The grid of chunks of two grids, one behind the other along an axis.

    Raises
    ------
    NotRepresentableError
        If the last chunk of the first one overhangs, or they differ along the other axes.
    """
    axes = list(before.axes)
    for other, (a, b) in enumerate(zip(before.axes, new.axes, strict=True)):
        if other != axis and a != b:
            raise NotRepresentableError(f"its chunks are cut differently (dimension {other})")
    first, second = before.axes[axis], new.axes[axis]
    if not first.is_exact:
        raise NotRepresentableError(
            f"the last chunk in the repository overhangs its data (dimension {axis})"
        )
    axes[axis] = GridAxis.from_runs(
        np.concatenate([first.run_lengths, second.run_lengths]),
        np.concatenate([first.run_counts, second.run_counts]),
        first.extent + second.extent,
    )
    return ChunkGrid(tuple(axes))


def check_alike(held: ArrayMetadata, new: ArrayMetadata, axis: int | None) -> None:
    """Refuse arrays of which one cannot be put behind the other; with no axis, that differ.

    Raises
    ------
    NotRepresentableError
        Saying in what they differ.
    """
    differing = [
        f"its {what} was {before!r}, now {now!r}"
        for what, before, now in (
            ("dtype", held.dtype, new.dtype),
            ("dimensions", held.dims, new.dims),
            ("fill value", _bytes(held.fill_value), _bytes(new.fill_value)),
            ("shape", *(_without(m.grid.shape, axis) for m in (held, new))),
            *((f"attribute {n}", held.attrs.get(n), new.attrs.get(n)) for n in _MEANING),
        )
        if before != now
    ]
    if differing:
        raise NotRepresentableError("; ".join(differing))


def _bytes(value: Any) -> bytes:
    return np.asarray(value).tobytes() if not isinstance(value, str) else value.encode()


def _without(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return shape if axis is None else (*shape[:axis], *shape[axis + 1 :])


def _check_same(
    store: icechunk.IcechunkStore, path: str, view: ArrayView, held: ArrayMetadata, plan: WritePlan
) -> None:
    """Refuse an array without the dimension that is another one than in the repository."""
    check_alike(held, view.metadata, None)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        before = zarr.open_array(store, path=path, mode="r")[...]
    if not _same(np.asarray(before), plan.reader.reader.read(view.array, name=path)):
        raise NotRepresentableError("its values differ from those in the repository")


def _same(before: NDArray[Any], now: NDArray[Any]) -> bool:
    if before.dtype.kind in "OT" or now.dtype.kind == "T":
        return bool(before.astype(object).tolist() == now.astype(object).tolist())
    return before.tobytes() == now.astype(before.dtype, copy=False).tobytes()
