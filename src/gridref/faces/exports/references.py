"""Walk a group for an export that refers to byte ranges of files, for any format of references.

A `Target` says what a format can express. `Export.of` decides about every array, before anything is
written: its stored chunks are referenced where the target can say them; it is written by value,
decoded, where it is small or the caller asks for that; else it is refused, with the reason.

A sink then writes what is particular to its format. It takes the arrays of `Export.views`, their
references of `Export.boxes`, in columns, and the bytes of chunks of `Export.values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import batched

from gridref.errors import InvalidRequestError, Message, NotRepresentableError, number_of
from gridref.io import is_local
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import Source
from gridref.serve.conventions import with_conventions
from gridref.serve.names import IN_ZARR, with_shown_names
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.pages import ReferencePage, keys_present, native_references
from gridref.serve.reader import Reader
from gridref.serve.views import ArrayView, View, ViewOptions, show, why_not_zarr
from gridref.typing import Int64Array

INLINE_LIMIT_BYTES = 2**20
"""Largest array that is written by value where its chunks cannot be referenced."""

PORTABLE = ViewOptions(View.PORTABLE)

IN_ARCHIVE = "its files are inside an archive, and a reference cannot name a part of that"

BOX_CHUNKS = 1 << 20
"""About the chunks whose references are looked up at a time."""
_N_THREADS = 16
_CHUNKS_AT_A_TIME = 32

type Coords = tuple[int, ...]

type Announce = Callable[[Mapping[str, str]], None]
"""Is called with the paths of the arrays that are written by value, each with the reason."""

type Materialize = bool | Iterable[str]
"""True writes every array by value that cannot be referenced. Paths name arrays that are written so
in any case."""


def is_nameable(source: Source) -> bool:
    """Whether other programs find a source by its address alone."""
    return "::" not in source.url or is_local(source.url)


def why_not_named(source: Source) -> str | None:
    """Why references cannot point into a source; None if they can."""
    return None if is_nameable(source) else IN_ARCHIVE


@dataclass(frozen=True)
class Target:
    """What a format of references can express.

    Attributes
    ----------
    name
        The format, in messages.
    native
        The view of chunks that it can refer to.
    decoded
        The view of arrays that are written by value.
    instead
        What users can do about an array that it cannot express.
    why_not
        Says why it cannot refer to a source; None if it can.
    """

    name: str
    native: ViewOptions
    decoded: ViewOptions = PORTABLE
    instead: str = "write a catalog"
    why_not: Callable[[Source], str | None] = why_not_named


@dataclass(frozen=True, eq=False)
class Export:
    """How each array of a group gets into references.

    Attributes
    ----------
    space
        The group as it is shown there.
    boxes
        References of the arrays whose chunks are referenced, by path.
    reasons
        Why the others are not, by path.
    decodable
        Paths of the arrays that may be written by value.
    """

    target: Target
    space: KeySpace
    boxes: Mapping[str, tuple[ReferencePage, ...]]
    reasons: Mapping[str, str]
    decodable: frozenset[str]
    reader: ObjectReader

    @classmethod
    def of(
        cls,
        group: VirtualGroup,
        target: Target,
        reader: Reader,
        inline_limit: int,
        materialize: Materialize = False,
    ) -> Export:
        """Decide about every array of a group. No chunk is read.

        Parameters
        ----------
        group
            What is exported.
        reader
            Reads what is written by value.
        inline_limit
            Largest size in bytes, decoded, of an array that may be written by value unasked.
        materialize
            Whether larger ones may be, too.

        Raises
        ------
        InvalidRequestError
            If `materialize` names an array that is not there.
        """
        arrays = group.all_arrays()
        asked = _asked(materialize, arrays)
        boxes: dict[str, tuple[ReferencePage, ...]] = {}
        reasons = dict.fromkeys(asked, "it is to be written by value")
        for path, array in arrays.items():
            if path in asked:
                continue
            try:
                boxes[path] = _referenced(array, target)
            except NotRepresentableError as error:
                reasons[path] = error.reason
        small = {
            path
            for path, array in arrays.items()
            if array.nbytes <= inline_limit and why_not_zarr(array) is None
        }
        decodable = frozenset(arrays if materialize is True else small | asked)
        space = KeySpace(group, target.native, dict.fromkeys(reasons, target.decoded))
        return cls(target, space, boxes, reasons, decodable, ObjectReader(reader))

    @property
    def refused(self) -> dict[str, str]:
        """Why the arrays are refused that are neither referenced nor written by value, by path."""
        return {p: reason for p, reason in self.reasons.items() if p not in self.decodable}

    def refuse(self) -> None:
        """Raise if there are arrays that the target cannot express; see `refuse`."""
        refuse(self.target.name, self.refused, self.target.instead)

    @cached_property
    def views(self) -> Mapping[str, ArrayView]:
        """How each array is shown, by path; without those of types that Zarr does not have."""
        return self.space.views()

    @property
    def sources(self) -> list[Source]:
        """All sources that are referenced."""
        boxes = (box for of_array in self.boxes.values() for box in of_array)
        return list(dict.fromkeys(source for box in boxes for source in box.references.sources))

    def values(self, path: str, coords: Int64Array | None = None) -> Iterator[tuple[Coords, bytes]]:
        """Read chunks of an array as they are shown.

        Parameters
        ----------
        coords
            Of the chunks, which are there, int64 (n, ndim); by default of all that are.

        Yields
        ------
        tuple
            Coords and bytes of each chunk, in the same order.
        """
        view = self.views[path]
        every = keys_present(view) if coords is None else map(tuple, coords.tolist())

        def read(at: Coords) -> tuple[Coords, bytes]:
            held = self.space.resolve(f"{path}/{view.metadata.chunk_key(at)}")
            assert held is not None
            return at, self.reader.read(held)

        with ThreadPoolExecutor(_N_THREADS) as threads:
            for some in batched(every, _CHUNKS_AT_A_TIME):
                yield from threads.map(read, some)


def as_zarr(group: VirtualGroup, reader: Reader) -> VirtualGroup:
    """A group with the names and the attributes under which it is shown as Zarr."""
    return with_conventions(with_shown_names(group, IN_ZARR), reader.read)


def refuse(references: str, reasons: Mapping[str, str], instead: str = "write a catalog") -> None:
    """Raise if there is anything that the references cannot express."""
    if reasons:
        lines = "\n".join(f"  - {name}: {reason}" for name, reason in sorted(reasons.items()))
        raise NotRepresentableError(
            Message(
                f"{references} cannot express {number_of(len(reasons), 'array')}; ",
                instead,
                f" instead:\n{lines}",
            )
        )


def _asked(materialize: Materialize, arrays: Mapping[str, object]) -> set[str]:
    """The arrays that are named to be written by value."""
    if isinstance(materialize, bool):
        return set()
    asked = {materialize} if isinstance(materialize, str) else set(materialize)
    unknown = asked - arrays.keys()
    if unknown:
        raise InvalidRequestError(
            f"materialize names {', '.join(sorted(unknown))}; there are {', '.join(sorted(arrays))}"
        )
    return asked


def _referenced(array: VirtualArray, target: Target) -> tuple[ReferencePage, ...]:
    """The references of an array."""
    view = show(array, target.native)
    if view.why_needs_package:
        raise NotRepresentableError(view.why_needs_package)
    boxes = tuple(_boxes(view))
    for source in {source: None for box in boxes for source in box.references.sources}:
        if reason := target.why_not(source):
            raise NotRepresentableError(reason)
    return boxes


def _boxes(view: ArrayView) -> Iterator[ReferencePage]:
    """The references of all chunks of a native view, in C order: pieces along the first axis."""
    grid_shape = view.chunk_grid.grid_shape
    if not grid_shape:
        yield ReferencePage((), (), native_references(view, (), ()))
        return
    step = max(1, BOX_CHUNKS // max(1, math.prod(grid_shape[1:])))
    for low in range(0, grid_shape[0], step):
        first = (low, *(0 for _ in grid_shape[1:]))
        counts = (min(step, grid_shape[0] - low), *grid_shape[1:])
        if 0 not in counts:
            yield ReferencePage(first, counts, native_references(view, first, counts))
