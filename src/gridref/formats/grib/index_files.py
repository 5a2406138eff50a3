"""Read index files beside GRIB files: ``.idx`` of wgrib2 (NOAA) and ``.index`` (ECMWF).

An index file lists where messages begin and what they are, in words of its own. These words are not
translated. The headers of the first file of a series say for each line which sections 1, 3 and 4
its message has. A line of a further file, which differs only in reference time, step, member and
place, then says that its message has the same sections but for these numbers.

That is a claim. Its digest is kept for the chunk, and the codec compares it with the message when
that is read. An index file that does not fit its file at the scan is not used.

Sources: inventories of wgrib2 (``-s``); ECMWF open data, "Index files".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

from gridref.codecs.grib import MessageError, claim_of, total_length
from gridref.forks import new_lock
from gridref.formats.grib.header import (
    MAGIC,
    Field,
    Header,
    Window,
    mark_of,
    read_header,
    read_message,
    walk,
)
from gridref.formats.grib.product import Moment, Product, product_2, sections_at
from gridref.formats.location import remote_sidecar
from gridref.formats.scanner import ScanOptions
from gridref.io import ScanFile
from gridref.io.context import waiting
from gridref.learned import FORMS

SUFFIXES = ("+.idx", ".index")

_START = re.compile(r"\d+(?:\.\d+)?:(\d{1,18}):")
_LINE = re.compile(
    r"[^:]*:\d*:d=(?P<start>\d{10}):(?P<what>[^:]*:[^:]*):"
    r"(?:anl|(?:(?P<begin>\d{1,6})-)?(?P<end>\d{1,6}) (?P<unit>min|hour|day)(?P<how> [a-z]+)? fcst)"
    r"(?P<more>:.*)?"
)
_SECONDS = {"min": 60, "hour": 3600, "day": 86400}
_NOT_WHAT = ("_offset", "_length", "date", "time", "step", "number")
_FEW_BYTES = 1 << 17
"""Smaller files are read in a request or two."""
_FORM_BYTES = 2000
"""What is kept of a line takes so much memory, about."""


class UnfitIndexError(ValueError):
    """An index file that cannot be read, or does not fit its file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in an index file.

    Attributes
    ----------
    what
        Equal for fields that differ only in time, step and member.
    moment
        Time, step and member; None if they are not understood, or it has several fields.
    """

    offset: int
    length: int
    what: Hashable
    moment: Moment | None


# Reading index files


def read_index(content: bytes, file_size: int) -> list[Entry]:
    """The messages of an index file, which follow each other up to the end of the file."""
    try:
        lines = content.decode().splitlines()
        is_json = content[:1] == b"{"
        found = list(_of_ecmwf(lines) if is_json else _of_noaa(lines))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise UnfitIndexError("it cannot be read") from error
    found.sort(key=lambda entry: entry.offset)
    n_fields = Counter(entry.offset for entry in found)
    starts = [*n_fields, file_size]
    entries: list[Entry] = []
    for entry in found:
        at, n_before = entry.offset, len(entries)
        if n_before and entries[-1].offset == at:
            continue
        length = starts[n_before + 1] - at
        if length <= 0 or entry.length not in (0, length):
            raise UnfitIndexError(f"its messages do not follow each other at byte {at}")
        is_one = n_fields[at] == 1
        entries.append(Entry(at, length, entry.what, entry.moment if is_one else None))
    if not entries:
        raise UnfitIndexError("it lists no message")
    return entries


def _of_noaa(lines: Iterable[str]) -> Iterator[Entry]:
    """Entries without a length: that is the distance to the next one."""
    for line in lines:
        began = _START.match(line)
        if began is None:
            raise ValueError(line)
        offset = int(began[1])
        told = _LINE.fullmatch(line)
        if told is None:
            yield Entry(offset, 0, None, None)
            continue
        start, what, begin, end, unit, how, more = told.groups()
        seconds = _SECONDS.get(unit, 0)
        moment = Moment(
            _time(start),
            int(begin or end or 0) * seconds,
            None if begin is None else int(end) * seconds,
        )
        yield Entry(offset, 0, (what, begin is None, unit, how, more), moment)


def _of_ecmwf(lines: Iterable[str]) -> Iterator[Entry]:
    """Entries of JSON lines. Those of windows do not tell where these begin."""
    for line in filter(str.strip, lines):
        told = json.loads(line)
        offset, length, step = int(told["_offset"]), int(told["_length"]), str(told["step"])
        if not 0 <= offset < 1 << 60 or not 0 < length < 1 << 60:
            raise ValueError(line)
        what = json.dumps({key: told[key] for key in sorted(told) if key not in _NOT_WHAT})
        moment = None
        if step.isdecimal() and len(step) < 7:
            number = int(told["number"]) if "number" in told else None
            start = _time(f"{told['date']}{told['time']}")
            moment = Moment(start, int(step) * 3600, None, number)
        yield Entry(offset, length, what, moment)


def _time(digits: str) -> datetime:
    """A time of ten or twelve digits."""
    parts = (digits[:4], *(digits[at : at + 2] for at in range(4, len(digits), 2)))
    return datetime(*map(int, parts), tzinfo=UTC)  # type: ignore[arg-type, misc]


# From messages to fields


def fields_of(file: ScanFile, head: bytes, options: ScanOptions) -> tuple[list[Field], str]:
    """The fields of a file; `head` is its beginning.

    Returns
    -------
    fields
    unfit
        Why the index file beside it is not used; empty if it is, or there is none.
    """
    most, entries, unfit = options.max_objects, list[Entry](), ""
    index = None
    if _pays(file, head):
        index = remote_sidecar(file.name, SUFFIXES, options.storage_options)
    if index is not None:
        try:
            entries = read_index(index[1], file.size)
            if options.index_files == "labels" and len(entries) <= most:
                return listed_fields(file, head, entries), ""
        except UnfitIndexError as error:
            unfit = f"{index[0].rpartition('/')[2]} does not fit the file: {error}"
    starts = [entry.offset for entry in entries if entry.offset < file.size]
    return walk(file, head, most, starts), unfit


def _pays(file: ScanFile, head: bytes) -> bool:
    """Whether a file has messages that need requests of their own."""
    at = head.find(MAGIC)
    try:
        return file.is_remote and at + total_length(head[at : at + 16]) < file.size > _FEW_BYTES
    except MessageError:
        return False


def listed_fields(file: ScanFile, head: bytes, entries: Sequence[Entry]) -> list[Field]:
    """The fields of a file; the headers of those that are not known yet are read.

    Parameters
    ----------
    head
        The beginning of the file.
    entries
        Of `read_index`.
    """
    try:
        first = read_header(Window(file, head), entries[0].offset)
        is_first = entries[0].offset == head.find(MAGIC)
        if first is None or not is_first or first.length != entries[0].length:
            raise UnfitIndexError("its first message is not the first one of the file")
        series = listed_fields, first.identification[:12], first.identification[19:], first.grid
        with _learning(series):
            return _fields(file, head, entries, series, first)
    except MessageError as error:
        raise UnfitIndexError(str(error)) from error


def _fields(
    file: ScanFile, head: bytes, entries: Sequence[Entry], series: Hashable, first: Header
) -> list[Field]:
    claimed = [_claimed(series, entry) for entry in entries]
    if claimed[0] is not None and claimed[0].claim != first.claim:
        raise UnfitIndexError(
            "its first message is a different field from the first one of the file"
        )
    unknown = [entry for entry, known in zip(entries, claimed, strict=True) if known is None]
    starts = {at for entry in unknown for at in (entry.offset, entry.offset + entry.length)}
    last = entries[-1]
    window = Window(file, head, sorted({*starts, last.offset} - {file.size}))
    fields: list[Field] = []
    for entry, known in zip(entries, claimed, strict=True):
        fields += [known] if known is not None else _read(window, entry, series)
    head = window.take(last.offset, 16)
    if head[:4] != MAGIC or total_length(head) != last.length:
        raise UnfitIndexError("it does not list the last message of the file")
    return fields


def _claimed(series: Hashable, entry: Entry) -> Field | None:
    """The field of a line like one that is known; None if there is none."""
    if entry.moment is None:
        return None
    known: tuple[Header, ...] = FORMS.get((series, entry.what)) or ()
    if len(known) != 1:
        return None
    (like,) = known
    told = sections_at(like.identification, like.product, entry.moment)
    if told is None:
        return None
    claim = claim_of(like.discipline, told[0], like.grid, told[1])
    product = product_2(like.discipline, *told)
    return Field(entry.offset, entry.length, 2, like.grid, product, claim, mark_of(*told))


def _read(window: Window, entry: Entry, series: Hashable) -> list[Field]:
    """The fields of a message, by its headers; what they say of its line is kept."""
    header = None if entry.moment is None else read_header(window, entry.offset)
    stop, fields = read_message(window, entry.offset)
    if stop != entry.offset + entry.length:
        raise UnfitIndexError(f"its messages do not follow each other at byte {entry.offset}")
    if header is not None and len(fields) == 1 and isinstance(fields[0].product, Product):
        assert entry.moment is not None
        told = sections_at(header.identification, header.product, entry.moment)
        if told == (header.identification, header.product):
            _keep((series, entry.what), header, entry.moment)
    return fields


def _keep(key: Hashable, header: Header, moment: Moment) -> None:
    """Remember what a line stands for; nothing if it stands for several products in a file."""
    known: tuple[Header, ...] = FORMS.get(key) or (header,)
    same = (header.identification, header.product)
    is_one = all(
        sections_at(like.identification, like.product, moment) == same and like.grid == header.grid
        for like in known
    )
    FORMS.put(key, known if is_one else (header, *known)[:2], _FORM_BYTES)


_locks: dict[Hashable, Lock] = {}


@contextmanager
def _learning(series: Hashable) -> Iterator[None]:
    """Let the first file of a series be read before others of it."""
    if FORMS.get(series) is not None:
        yield
        return
    lock = _locks.setdefault(series, new_lock())
    with waiting():
        lock.acquire()
    try:
        yield
        FORMS.put(series, True, 1000)
    finally:
        lock.release()
        _locks.pop(series, None)
