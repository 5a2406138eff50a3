"""Every exception that gridref raises on purpose.

The tree is sorted by what a caller would do about it::

    GridrefError
    ├── InvalidRequestError (ValueError)    fix the call: a bad selection, option or name
    │   ├── MissingPackageError (ImportError)   needs a package of an extra: install it
    │   ├── UnclearLayoutError              files may be laid out in several ways: choose one
    │   ├── GroupNotFoundError (OSError)    no group of that name
    │   └── OutOfBoundsError (IndexError)   no element of that index
    ├── ScanError                           a source file cannot be described
    │   ├── FilesFailedError                several files at once: carries every reason
    │   ├── SourceFormatError               not the format it claims, truncated or corrupt
    │   └── UnsupportedFeatureError         valid, but not servable faithfully: skip or ask for it
    ├── CombineError (ValueError)           inputs do not fit together: carries every problem
    ├── CatalogError                        the catalog itself is unusable
    │   ├── CatalogNotFoundError            there is none at that address
    │   ├── CatalogVersionError             written by another format version
    │   ├── CatalogCorruptError             cut, missing or contradictory parts
    │   └── CatalogConflictError            another writer made a conflicting change first
    ├── ReadError                           data exists but could not be delivered
    │   ├── SourceUnavailableError          vanished, unreachable, or not permitted
    │   ├── SourceNotAllowedError           a catalog names it but may not read it: allow it
    │   ├── SourceChangedError              size, ETag or mtime differ from the scan's
    │   ├── BlockPendingError               declared ahead, and no file added yet
    │   ├── ChecksumError                   stored bytes do not match their checksum
    │   ├── ShortReadError                  fewer bytes arrived than the reference states
    │   └── DecodeError                     the bytes cannot be decoded
    ├── NotRepresentableError               this view, export or slice cannot express it
    └── ReadOnlyError (PermissionError)     a write on a read-only store

Each class has a `kind`: a short name for programs and logs that stays the same if a class is moved
or renamed. Tracebacks end with it, and ``gridref --explain KIND`` prints cause and remedy. Kinds,
and the causes of problems (`PROBLEM_CAUSES`), are only added, never changed or removed.

A message that names options of a call is a `Message`; each `Option` in it has a name and a value.
``str`` spells options as in Python. The command line spells them in its own way.

None of them is a ``KeyError`` or ``FileNotFoundError``: Zarr readers interpret those as "this chunk
is absent" and would fill in values that are not in the archive.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any, ClassVar, Self

from gridref.secrets import cut_short, shown_address, without_secrets

__all__ = [
    "PROBLEM_CAUSES",
    "BlockPendingError",
    "CatalogConflictError",
    "CatalogCorruptError",
    "CatalogError",
    "CatalogNotFoundError",
    "CatalogVersionError",
    "ChecksumError",
    "CombineError",
    "DecodeError",
    "FilesFailedError",
    "GridrefError",
    "GroupNotFoundError",
    "InvalidRequestError",
    "LeftOutWarning",
    "Message",
    "MissingPackageError",
    "NotRepresentableError",
    "Option",
    "OutOfBoundsError",
    "OverlayNotUsedWarning",
    "Place",
    "Problem",
    "ReadError",
    "ReadOnlyError",
    "ScanError",
    "ShortReadError",
    "SkippedFilesWarning",
    "SourceChangedError",
    "SourceFormatError",
    "SourceNotAllowedError",
    "SourceUnavailableError",
    "UnclearLayoutError",
    "UnsupportedFeatureError",
]


@dataclass(frozen=True)
class Place:
    """Where something went wrong; every part may be unknown.

    Attributes
    ----------
    source
        URL or path of the file; credentials and queries of URLs are left out.
    variable
        Path of the array inside its group, like ``/model/tas``.
    chunk
        Chunk coords, an integer tuple.
    start, stop
        Half-open byte range in the source.
    """

    source: str | None = None
    variable: str | None = None
    chunk: tuple[int, ...] | None = None
    start: int | None = None
    stop: int | None = None

    def __post_init__(self) -> None:
        if self.source is not None:
            object.__setattr__(self, "source", shown_address(self.source))

    def __str__(self) -> str:
        parts = []
        if self.source is not None:
            parts.append(f"file {cut_short(self.source)}")
        if self.variable is not None:
            parts.append(f"variable {self.variable}")
        if self.chunk is not None:
            parts.append(f"chunk ({', '.join(map(str, self.chunk))})")
        if self.start is not None:
            parts.append(f"bytes {self.start}-{'' if self.stop is None else self.stop}")
        return ", ".join(parts)

    def within(self, outer: Place) -> Place:
        """Fill in unknown parts of this place from `outer`."""
        return replace(
            outer, **{name: value for name, value in vars(self).items() if value is not None}
        )


@dataclass(frozen=True)
class Option:
    """An option of a call that a message names. Each face spells it as its users do.

    Attributes
    ----------
    name
        Its name, as commands and recipes have it: ``overlap``.
    value
        The value that the message speaks of; ``...`` for any.
    in_python
        How Python spells it, if not by name and value: ``layout=Stack('time')`` for ``stack``.
    """

    name: str
    value: Any = ...
    in_python: str = ""

    def __str__(self) -> str:
        value = "..." if self.value is ... else repr(self.value)
        return without_secrets(self.in_python or f"{self.name}={value}")


class Message(str):
    """A text that names options. As a string it is spelled for Python; other faces use `parts`.

    Parameters
    ----------
    *parts
        Texts, options, and other messages, in order. Credentials and queries of URLs are left out.
    """

    __slots__ = ("parts",)

    parts: tuple[str | Option, ...]

    def __new__(cls, *parts: str | Option) -> Self:
        flat: list[str | Option] = []
        for part in parts:
            if isinstance(part, Message):
                flat += part.parts
            else:
                flat.append(part if isinstance(part, Option) else without_secrets(part))
        made = super().__new__(cls, "".join(map(str, flat)))
        made.parts = tuple(flat)
        return made

    def __add__(self, other: str) -> Message:
        return Message(self, other)

    def __radd__(self, other: str) -> Message:
        return Message(other, self)

    def __getnewargs__(self) -> tuple[str | Option, ...]:  # type: ignore[override]
        return self.parts

    @classmethod
    def joined(cls, separator: str, texts: Iterable[str]) -> Message:
        """Texts one after the other, with a separator between them."""
        between = (part for text in texts for part in (separator, text))
        return cls(*islice(between, 1, None))

    @classmethod
    def naming(cls, options: Mapping[str, Any]) -> Message:
        """Options by name, as they are written in a call."""
        return cls.joined(", ", (cls(Option(name, value)) for name, value in options.items()))

    def without(self, text: str) -> Message:
        """The message with a text left out of its parts; options stay."""
        return Message(
            *(part if isinstance(part, Option) else part.replace(text, "") for part in self.parts)
        )

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that the message names, in order."""
        return tuple(part for part in self.parts if isinstance(part, Option))


class GridrefError(Exception):
    """Base of all errors raised by gridref.

    Parameters
    ----------
    reason
        What is wrong and what to do, in one line. Credentials and queries of URLs are left out.
    place
        Where it is wrong. The text shows it after the reason.
    """

    kind: ClassVar[str] = "gridref"
    """Stable name of the class of errors."""

    def __init__(self, reason: str, place: Place | None = None) -> None:
        reason = reason if isinstance(reason, Message) else without_secrets(reason)
        super().__init__(reason)
        self.reason = reason
        self.place = place if place is not None else Place()
        self.add_note(f"Cause and remedy: gridref --explain {self.kind}")

    def __str__(self) -> str:
        return str(self.message)

    @property
    def message(self) -> Message:
        """Reason and place."""
        where = str(self.place)
        return Message(self.reason, f" [{where}]" if where else "")

    @property
    def explained(self) -> Message:
        """The message, and the command that prints cause and remedy."""
        return Message(
            self.message,
            "\n" if "\n" in self.message else " ",
            f"(see gridref --explain {self.kind})",
        )

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that the message names, each with a value."""
        return self.message.options

    def located(self, place: Place) -> GridrefError:
        """Add what is known about the place, and return this error, to be raised again."""
        self.place = self.place.within(place)
        return self


class InvalidRequestError(GridrefError, ValueError):
    """The call itself is wrong: a selection, option or name that is not valid."""

    kind: ClassVar[str] = "invalid-request"


class MissingPackageError(InvalidRequestError, ImportError):
    """A package that this call needs is not installed."""

    kind: ClassVar[str] = "missing-package"


class UnclearLayoutError(InvalidRequestError):
    """Several layouts fit the files, or the files contradict their names.

    Attributes
    ----------
    choices
        The options of each way, in the order in which the message lists them.
    groups
        The result of each, as a `VirtualGroup`. A copy of the error in another process has none.
    """

    kind: ClassVar[str] = "unclear-layout"

    def __init__(
        self,
        reason: str,
        choices: Sequence[Mapping[str, Any]] = (),
        groups: Sequence[Any] = (),
    ) -> None:
        super().__init__(reason)
        self.choices = tuple(choices)
        self.groups = tuple(groups)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.choices)


class GroupNotFoundError(InvalidRequestError, OSError):
    """There is no group of that name."""

    kind: ClassVar[str] = "group-not-found"


class OutOfBoundsError(InvalidRequestError, IndexError):
    """A dimension has no element of that index."""

    kind: ClassVar[str] = "out-of-bounds"


class ScanError(GridrefError):
    """A source file cannot be described."""

    kind: ClassVar[str] = "scan"


class SourceFormatError(ScanError):
    """The file is not of the format it claims to be, or is truncated or corrupt."""

    kind: ClassVar[str] = "source-format"


class FilesFailedError(ScanError):
    """Several files cannot be described. Each reason is listed with one file and a count.

    Attributes
    ----------
    failures
        The error of each file, in the order of the files.
    why
        The number of all files, or the reason why no more were tried.
    """

    kind: ClassVar[str] = "files-failed"

    def __init__(self, failures: Sequence[GridrefError], why: str = "") -> None:
        self.failures = tuple(failures)
        self.why = why
        tail = Message(" (", why, ")") if why else ""
        head = Message(f"{number_of(len(self.failures), 'file')} cannot be scanned", tail, ":")
        lines = []
        for first, *others in by_reason(self.failures, lambda failure: str(failure.reason)):
            more = f" and {number_of(len(others), 'more file')}" if others else ""
            lines.append(Message(first.message, more))
        super().__init__(_listed(head, lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures, self.why)


class LeftOutWarning(UserWarning):
    """Warns that a part of the files is not in the result, and gives the reason."""


class SkippedFilesWarning(LeftOutWarning):
    """Warns that files were left out because of ``on_error="skip"``, and gives the reasons."""


class OverlayNotUsedWarning(UserWarning):
    """Warns that an overlay cannot be read, so the files were read, and gives the reason."""


class UnsupportedFeatureError(ScanError):
    """The file is valid, but holds something that gridref cannot serve faithfully."""

    kind: ClassVar[str] = "unsupported-feature"


class CatalogError(GridrefError):
    """A catalog is unusable."""

    kind: ClassVar[str] = "catalog"


class CatalogNotFoundError(CatalogError):
    """No catalog at the address."""

    kind: ClassVar[str] = "catalog-not-found"


class CatalogVersionError(CatalogError):
    """The catalog is of a format version that this gridref does not know."""

    kind: ClassVar[str] = "catalog-version"


class CatalogCorruptError(CatalogError):
    """Parts of the catalog are cut, missing or contradict each other."""

    kind: ClassVar[str] = "catalog-corrupt"


class CatalogConflictError(CatalogError):
    """Another writer changed the catalog in the meantime, and this change no longer fits."""

    kind: ClassVar[str] = "catalog-conflict"


class ReadError(GridrefError):
    """Data that exists could not be delivered."""

    kind: ClassVar[str] = "read"


class SourceUnavailableError(ReadError):
    """A source is missing, cannot be reached, or may not be read."""

    kind: ClassVar[str] = "source-unavailable"


class SourceNotAllowedError(ReadError):
    """A catalog or references name a source that the caller has not allowed."""

    kind: ClassVar[str] = "source-not-allowed"


class SourceChangedError(ReadError):
    """A source is not the file that was scanned."""

    kind: ClassVar[str] = "source-changed"


class BlockPendingError(ReadError):
    """Elements were declared ahead, and no file with them has been added yet."""

    kind: ClassVar[str] = "block-pending"


class ChecksumError(ReadError):
    """The stored bytes of a chunk do not match its checksum."""

    kind: ClassVar[str] = "checksum"


class ShortReadError(ReadError):
    """A source delivered fewer bytes than a chunk reference promises."""

    kind: ClassVar[str] = "short-read"


class DecodeError(ReadError):
    """Stored bytes cannot be decoded by their codec chain."""

    kind: ClassVar[str] = "decode"


class NotRepresentableError(GridrefError):
    """The view, export or selection asked for cannot express this array."""

    kind: ClassVar[str] = "not-representable"


class ReadOnlyError(GridrefError, PermissionError, ValueError):
    """Catalogs are served read-only."""

    kind: ClassVar[str] = "read-only"


PROBLEM_CAUSES = frozenset(
    {
        "attributes",
        "calendar-differs",
        "crs-differs",
        "dimension-missing",
        "dimensions-differ",
        "dtype-differs",
        "flags-differ",
        "index-shift",
        "labels-differ",
        "labels-missing",
        "nodata-differs",
        "not-georeferenced",
        "off-grid",
        "overlap",
        "packing-differs",
        "resolution-differs",
        "rotated",
        "shape-differs",
        "spacing-differs",
        "time-units-differ",
        "unexpected",
        "units-differ",
        "values-differ",
        "variable-damaged",
        "variable-missing",
    }
)
"""Every `Problem.cause`. Names are added, never changed or removed."""


@dataclass(frozen=True)
class Problem:
    """One reason why inputs do not fit together.

    Attributes
    ----------
    cause
        Short stable name of the kind of problem: one of `PROBLEM_CAUSES`.
    message
        What differs, with the values, and what to do.
    variable
        Path of the array concerned.
    sources
        The files concerned.
    """

    cause: str
    message: str
    variable: str | None = None
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.message, Message):
            object.__setattr__(self, "message", without_secrets(self.message))
        object.__setattr__(self, "sources", tuple(map(shown_address, self.sources)))
        assert self.cause in PROBLEM_CAUSES, f"add {self.cause!r} to PROBLEM_CAUSES"

    def __str__(self) -> str:
        return str(self.whole)

    @property
    def whole(self) -> Message:
        """The message with the variable and the files."""
        head = f"{self.variable}: " if self.variable else ""
        shown = some_of(self.sources, text=cut_short)
        return Message(head, self.message, f" [{shown}]" if shown else "")


def number_of(n: int, noun: str, plural: str = "", form: str = "") -> str:
    """A number with its noun: ``1 file``, ``2 files``, ``3 axes``; ``4,000 files`` for ``,``."""
    return f"{n:{form}} {noun if n == 1 else plural or f'{noun}s'}"


def some_of[T](entries: Sequence[T], n_shown: int = 3, text: Callable[[T], str] = str) -> str:
    """The first of some entries, and how many there are more: ``a, b, c and 4 more``."""
    more = f" and {len(entries) - n_shown} more" if len(entries) > n_shown else ""
    return ", ".join(map(text, entries[:n_shown])) + more


def by_reason[T](entries: Iterable[T], reason_of: Callable[[T], str]) -> list[list[T]]:
    """Group entries whose reasons differ only in numbers."""
    found: dict[str, list[T]] = {}
    for entry in entries:
        found.setdefault(re.sub(r"\d+", "0", reason_of(entry)), []).append(entry)
    return [*found.values()]


def _listed(head: str, lines: Iterable[str]) -> Message:
    """A message with some lines below."""
    return Message(head, *(part for line in lines for part in ("\n  - ", line)))


_MOST_PROBLEMS, _MOST_VARIABLES = 5, 4


def problems_in_short(problems: Sequence[Problem]) -> list[Message]:
    """Lines for some problems, of each cause if possible; equal problems share a line.

    The common folder of their files is named once, in a line of its own.
    """
    variables: dict[Problem, list[str]] = {}
    for problem in problems:
        alike = replace(problem, variable=None)
        variables.setdefault(alike, []).append(problem.variable or "")
    of_cause: Counter[str] = Counter()
    ranks = {}
    for problem in variables:
        ranks[problem] = of_cause[problem.cause]
        of_cause[problem.cause] += 1
    listed = set(sorted(ranks, key=ranks.__getitem__)[:_MOST_PROBLEMS])
    lines = []
    for problem, names in variables.items():
        if problem not in listed:
            continue
        shown = some_of(names, _MOST_VARIABLES)
        which = f"each of {shown}" if len(names) > 1 else shown
        named = problem.sources and str(problem.message).count(problem.sources[0])
        sources = () if named else problem.sources
        lines.append(replace(problem, variable=which or None, sources=sources).whole)
    folders = [source.split("/")[:-1] for problem in problems for source in problem.sources]
    levels = takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False))
    folder = "".join(f"{level[0]}/" for level in levels)
    if folder.strip("/") and not folder.endswith("://") and "".join(lines).count(folder) > 1:
        lines = [line.without(folder) for line in lines]
        lines.append(Message(f"all files are in {folder}"))
    n_more = sum(len(names) for problem, names in variables.items() if problem not in listed)
    if n_more:
        more = f"{n_more} more: gridref plan --all lists all, in Python error.problems"
        lines.append(Message(more))
    return lines


def problems_counted(problems: Sequence[Problem]) -> str:
    """How many problems there are, and what is counted if variables share one."""
    shared = len({replace(problem, variable=None) for problem in problems}) < len(problems)
    counted = ", counted for each variable" if shared else ""
    return f"{number_of(len(problems), 'problem')} in combining{counted}:"


class CombineError(GridrefError, ValueError):
    """Inputs cannot be combined; all problems are collected, and the first are listed.

    Attributes
    ----------
    problems
        Every problem found, in the order of the inputs.
    layout
        The layout that was found for the files, if the caller named none.
    """

    kind: ClassVar[str] = "combine"

    def __init__(self, problems: Sequence[Problem], layout: str = "") -> None:
        self.problems = tuple(problems)
        self.layout = layout
        lines = problems_in_short(self.problems)
        if layout:
            advice = "if that is wrong, name the layout, or leave out the files that differ"
            lines.append(Message(layout, ": ", advice))
        super().__init__(_listed(problems_counted(self.problems), lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems, self.layout), vars(self)
