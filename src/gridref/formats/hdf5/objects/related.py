"""Files that an HDF5 file names: behind external links, external storage and virtual datasets.

The file chooses their names, and is read with the rights of whoever scans it: they have to lie in
the folder of the file that was named first, in one that was allowed, or in one that HDF5's
variables name.

Sources: HDF5 Reference Manual, H5Pset_external, H5Pset_efile_prefix, H5Pset_virtual_prefix,
H5Lcreate_external.
"""

from __future__ import annotations

import os

from gridref.errors import SourceUnavailableError
from gridref.formats.location import require_allowed
from gridref.formats.options import ScanOptions
from gridref.io import beside, describe_source, is_absent, is_local, note_opened, policy_for
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy

__all__ = ["external_file", "linked_file", "policy_of", "virtual_file"]

_VARIABLES = ("HDF5_EXT_PREFIX", "HDF5_EXTFILE_PREFIX", "HDF5_VDS_PREFIX")


def policy_of(url: str, options: ScanOptions) -> SourcePolicy:
    """Which other files may be read on behalf of a file."""
    values = (os.environ.get(variable, "") for variable in _VARIABLES)
    folders = [each for value in values for each in value.split(os.pathsep) if os.path.isabs(each)]
    allow = options.allow
    given = [allow] if isinstance(allow, str | os.PathLike) else list(allow or ())
    return policy_for(url, [*given, *folders])


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


def external_file(url: str, name: str, options: ScanOptions, policy: SourcePolicy) -> Source:
    """The external raw file that a dataset in the file `url` names.

    HDF5 looks in the folder of ``HDF5_EXTFILE_PREFIX``, else in the working directory. What is not
    there is looked for beside the file.

    Raises
    ------
    SourceUnavailableError
        If it is in none of them.
    UnsupportedFeatureError
        If it may not be read.
    """
    candidates = _candidates(url, name, "HDF5_EXTFILE_PREFIX", cwd_first=True)
    return _first(candidates, options, policy)


def virtual_file(url: str, name: str, options: ScanOptions, policy: SourcePolicy) -> Source | None:
    """The file with a source dataset of a virtual dataset; None if there is none.

    HDF5 looks in the folder of ``HDF5_VDS_PREFIX``, beside the file, then in the working directory.

    Raises
    ------
    UnsupportedFeatureError
        If it may not be read.
    """
    try:
        return _first(_candidates(url, name, "HDF5_VDS_PREFIX", cwd_first=False), options, policy)
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


def _first(candidates: list[str], options: ScanOptions, policy: SourcePolicy) -> Source:
    found = next(filter(os.path.isfile, candidates[:-1]), candidates[-1])
    if not is_local(found) or os.path.lexists(found):
        require_allowed(policy, found)
    return describe_source(found, options.storage_options)
