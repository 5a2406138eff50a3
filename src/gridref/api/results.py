"""What calls return that look at a catalog or publish it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gridref.errors import Place
from gridref.model.scan_report import html_of


@dataclass(frozen=True)
class Difference:
    """A chunk, or a label of a file, that gridref reads otherwise than the original reader.

    A chunk that gridref cannot decode, though it knows all of its codecs, is one too.
    """

    place: Place
    message: str

    @property
    def is_label(self) -> bool:
        """Whether a file's labels differ, or what its values mean; its place names no chunk."""
        return self.place.chunk is None

    def __str__(self) -> str:
        return f"{self.message} [{self.place}]"


@dataclass(frozen=True)
class Verification:
    """The outcome of a comparison.

    Attributes
    ----------
    n_arrays, n_chunks, n_values
        How much was compared.
    differences
        Every chunk that differs or cannot be decoded, and every label of a file that differs.
    not_compared
        (path, reason) of what the original readers have no counterpart of.
    n_checksums
        Chunks whose checksums were recorded.
    n_labels
        Labels that were compared: values of coordinates, for each file.
    """

    n_arrays: int = 0
    n_chunks: int = 0
    n_values: int = 0
    differences: tuple[Difference, ...] = ()
    not_compared: tuple[tuple[str, str], ...] = ()
    n_checksums: int = 0
    n_labels: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def _repr_html_(self) -> str | None:
        return html_of(self)


@dataclass(frozen=True)
class Watch:
    """What watching has done so far.

    Attributes
    ----------
    snapshot
        Id of the last snapshot.
    appended
        Files of the last round that were appended.
    failed
        Files that cannot be appended as they are now, with the reasons; they are tried again in
        every round.
    """

    snapshot: str
    appended: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """What was written.

    Attributes
    ----------
    files
        Paths of files in the folder, without those of the catalog's copy.
    left_out
        Files that cannot be, with the reasons.
    """

    files: tuple[str, ...]
    left_out: Mapping[str, str]
