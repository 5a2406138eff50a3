"""From files to one catalog: scan them, several at once, and combine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from gridref.catalog import write_catalog
from gridref.combine import concat
from gridref.combine.labelled import with_label
from gridref.combine.mosaic import mosaic as lay_mosaic
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError
from gridref.formats import scan
from gridref.io import expand_urls
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.workflows.labels import LabelPattern
from gridref.workflows.opening import reader_for
from gridref.workflows.units import with_converter

__all__ = ["Layout", "build", "scan_each", "scan_many"]

Progress = Callable[[int, int], None]

FILES_PER_WORKER = 16
"""Starting another process pays off from about so many files on."""


def build(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    concat_dim: str | None = None,
    *,
    stack: str | None = None,
    pattern: str | None = None,
    pattern_of: str | None = None,
    mosaic: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_unsupported: str = "raise",
    n_processes: int | None = 1,
    progress: Progress | None = None,
    **combining: Any,
) -> VirtualGroup:
    """Index files, combine them and write the catalog.

    Parameters
    ----------
    files
        Paths, URLs, globs or directories.
    output
        Where the catalog goes: a local path or an fsspec URL, by custom ending in ``.gridref``.
    concat_dim
        Dimension to concatenate along, existing or new. One file needs none.
    stack
        New dimension to stack the files along.
    pattern
        What the labels along `stack` look like in the file names, like ``{time:%Y%m%d}``. The
        files are put in the order of their labels.
    pattern_of
        Attribute of the files to find the labels in instead of their names, like
        ``TIFFTAG_DATETIME``.
    mosaic
        Lay the files out by their georeferencing.
    storage_options
        Options for fsspec.
    on_unsupported
        ``"raise"``, or ``"skip"``: leave out what cannot be served faithfully; the report says so.
    n_processes
        Processes that scan; None takes one for each core, if there are files enough. More than one
        need a main module that can be imported, as ever with `multiprocessing`.
    progress
        Called with the number of files scanned, and of all files.
    **combining
        Fields of `gridref.combine.CombineOptions`; for a mosaic, options of
        `gridref.combine.mosaic.mosaic`. ``convert_units=True`` converts with pint.

    Returns
    -------
    VirtualGroup
        What was written. Its ``report`` lists every object of every file.

    Raises
    ------
    InvalidRequestError
        If a pattern matches nothing, or several files come with no way to be combined.
    ScanError
        If a file cannot be described.
    CombineError
        If the files do not fit together: all problems at once.
    """
    layout = Layout(concat_dim, stack, pattern, pattern_of, mosaic)
    options = with_converter(combining)
    urls = layout.ordered(expand_urls(files, storage_options))
    scanned = scan_each(
        urls,
        storage_options=storage_options,
        on_unsupported=on_unsupported,
        n_processes=n_processes,
        progress=progress,
    )
    group = layout.combine(urls, scanned, reader_for(storage_options).read, options)
    write_catalog(group, os.fspath(output), storage_options)
    return group


@dataclass(frozen=True)
class Layout:
    """How files are laid beside each other: at most one way, see `build`."""

    concat_dim: str | None = None
    stack: str | None = None
    pattern: str | None = None
    pattern_of: str | None = None
    mosaic: bool = False

    def __post_init__(self) -> None:
        if bool(self.concat_dim) + bool(self.stack) + self.mosaic > 1:
            raise InvalidRequestError("ask for one of a dimension to concatenate, stack or mosaic")
        if self.pattern and not self.stack:
            raise InvalidRequestError("a pattern labels the files of a stack: name its dimension")
        if self.pattern_of and not self.pattern:
            raise InvalidRequestError("an attribute to find labels in needs their pattern")

    def ordered(self, urls: Sequence[str]) -> list[str]:
        """The files in the order in which they are combined, as far as their names tell."""
        if len(urls) > 1 and not (self.concat_dim or self.stack or self.mosaic):
            raise InvalidRequestError(
                f"{len(urls)} files need a dimension to lie along: name it (concat_dim,"
                " --concat-dim), stack them (stack, --stack) or ask for a mosaic (--mosaic)"
            )
        pattern = self._parsed_pattern()
        if pattern is None or self.pattern_of is not None:
            return list(urls)
        return sorted(urls, key=pattern.label_of_name)

    def combine(
        self,
        urls: Sequence[str],
        groups: Iterable[VirtualGroup],
        read: Read,
        options: Mapping[str, Any],
    ) -> VirtualGroup:
        """One group of all."""
        if self.mosaic:
            return lay_mosaic(list(groups), **options)
        if self.stack is not None:
            labelled = self._labelled(self.stack, urls, groups)
            group = concat(labelled, self.stack, read=read, **options)
            return group if self.pattern is None else _in_one_chunk(group, self.stack, read)
        if self.concat_dim is not None:
            return concat(groups, self.concat_dim, read=read, **options)
        (group,) = groups
        return group

    def _parsed_pattern(self) -> LabelPattern | None:
        if self.stack is None or self.pattern is None:
            return None
        return LabelPattern.parse(self.pattern, self.stack)

    def _labelled(
        self, dim: str, urls: Sequence[str], groups: Iterable[VirtualGroup]
    ) -> Iterable[VirtualGroup]:
        """Groups with their labels, in the order of the labels."""
        pattern = self._parsed_pattern()
        if pattern is None:
            return groups
        if self.pattern_of is None:
            return (
                with_label(group, dim, pattern.label_of_name(url), pattern.attrs)
                for url, group in zip(urls, groups, strict=True)
            )
        found = []
        for url, group in zip(urls, groups, strict=True):
            label = pattern.label_of_attribute(group.attrs, self.pattern_of, url)
            others = {name: text for name, text in group.attrs.items() if name != self.pattern_of}
            rest = group.replace(attrs=others)
            found.append((label, with_label(rest, dim, label, pattern.attrs)))
        return [group for _, group in sorted(found, key=itemgetter(0))]


def _in_one_chunk(group: VirtualGroup, name: str, read: Read) -> VirtualGroup:
    """The labels, one of each file, kept together: they are read together."""
    coordinate = group.arrays[name]
    whole = VirtualArray.from_numpy(read(coordinate), coordinate.dims, coordinate.attrs)
    return group.replace(arrays={**group.arrays, name: whole})


def scan_many(urls: Sequence[str], **options: Any) -> list[VirtualGroup]:
    """Scan files; the results are in the order of `urls`. Options are those of `scan_each`."""
    return list(scan_each(urls, **options))


def scan_each(
    urls: Sequence[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    on_unsupported: str = "raise",
    n_processes: int | None = 1,
    progress: Progress | None = None,
) -> Iterator[VirtualGroup]:
    """Scan files one after the other, or in several processes; see `build` for the parameters.

    Processes, not threads: HDF5 holds one lock for all threads.
    """
    scan_one = partial(_scan, storage_options=storage_options, on_unsupported=on_unsupported)
    if n_processes is None:
        n_processes = min(os.cpu_count() or 1, len(urls) // FILES_PER_WORKER)
    with _mapped(scan_one, urls, n_processes) as results:
        for number, group in enumerate(results, start=1):
            if progress is not None:
                progress(number, len(urls))
            yield group


def _scan(url: str, **options: Any) -> VirtualGroup:
    return scan(url, **options)


@contextmanager
def _mapped(
    scan_one: Callable[[str], VirtualGroup], urls: Sequence[str], n_processes: int
) -> Iterator[Iterable[VirtualGroup]]:
    if n_processes < 2:
        yield map(scan_one, urls)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_processes, mp_context=context) as pool:
        try:
            yield pool.map(scan_one, urls, chunksize=4)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
