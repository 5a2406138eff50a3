"""Files that an HDF5 file names: behind external links, external storage and virtual datasets.

Sources: HDF5 Reference Manual, H5Pset_external, H5Pset_efile_prefix, H5Pset_virtual_prefix,
H5Lcreate_external.
"""

from __future__ import annotations

import os

from gridref.errors import SourceUnavailableError
from gridref.formats.options import ScanOptions
from gridref.io import beside, describe_source, is_absent, is_local, note_opened
from gridref.model.manifest import Source

__all__ = ["external_file", "linked_file", "virtual_file"]


def linked_file(url: str, name: str) -> str | None:
    """The file that an external link in the file `url` names; None if there is none.

    HDF5 looks in the folders of ``HDF5_EXT_PREFIX``, beside the file, in the working directory,
    then beside the file that a symbolic link to the file means. Of an absolute name that leads
    nowhere, it looks for the last part. Of a remote file, it is not known whether it is there.
    """
    note_opened(beside(url, name))
    if not is_local(url):
        return beside(url, name)
    absolute = [name] if os.path.isabs(name) else []
    name = os.path.basename(name) if absolute else name
    prefixes = os.environ.get("HDF5_EXT_PREFIX", "").split(os.pathsep)
    folders = [
        *(prefix for prefix in prefixes if prefix),
        os.path.dirname(url),
        "",
        os.path.dirname(os.path.realpath(url)),
    ]
    candidates = [*absolute, *(os.path.abspath(os.path.join(folder, name)) for folder in folders)]
    return next(filter(os.path.isfile, candidates), None)


def external_file(url: str, name: str, options: ScanOptions) -> Source:
    """The external raw file that a dataset in the file `url` names.

    HDF5 looks in the folder of ``HDF5_EXTFILE_PREFIX``, else in the working directory. What is not
    there is looked for beside the file.

    Raises
    ------
    SourceUnavailableError
        If it is in none of them.
    """
    return _first(_candidates(url, name, "HDF5_EXTFILE_PREFIX", cwd_first=True), options)


def virtual_file(url: str, name: str, options: ScanOptions) -> Source | None:
    """The file with a source dataset of a virtual dataset; None if there is none.

    HDF5 looks in the folder of ``HDF5_VDS_PREFIX``, beside the file, then in the working directory.
    """
    try:
        return _first(_candidates(url, name, "HDF5_VDS_PREFIX", cwd_first=False), options)
    except SourceUnavailableError as error:
        if is_local(url) or is_absent(error):
            return None
        raise


def _candidates(url: str, name: str, variable: str, *, cwd_first: bool) -> list[str]:
    near = beside(url, name)
    note_opened(near)
    if not is_local(url):
        return [near]
    if os.path.isabs(name):
        return [name, os.path.join(os.path.dirname(url), os.path.basename(name))]
    prefix = os.environ.get(variable, "").replace("${ORIGIN}", os.path.dirname(url))
    named = [os.path.abspath(os.path.join(prefix, name))] if prefix else []
    here = os.path.abspath(name)
    return [*named, here, near] if cwd_first else [*named, near, here]


def _first(candidates: list[str], options: ScanOptions) -> Source:
    for candidate in candidates[:-1]:
        if os.path.isfile(candidate):
            return describe_source(candidate)
    return describe_source(candidates[-1], options.storage_options)
