"""Find files that describe another file beside them.

Nothing promises them. So a folder is asked for each name once, and only for the name that it had:
files in a folder without any cost no further request.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridref.errors import GridrefError
from gridref.formats.options import ScanOptions
from gridref.io import is_local
from gridref.io.remote import RemoteFiles
from gridref.learned import FORMS
from gridref.limits import limits

_NONE = ""


def remote_sidecar(
    url: str, suffixes: Sequence[str], options: ScanOptions
) -> tuple[str, bytes] | None:
    """The first of some files beside a remote one that is there, unless it is beyond the limit.

    Parameters
    ----------
    url
        The remote file. Local files, and addresses with a query, have no sidecars.
    suffixes
        Ends of names: ``"+.idx"`` is put behind the file's name, ``".index"`` in place of its
        suffix.

    Returns
    -------
    tuple or None
        Address and content.
    """
    if is_local(url) or "?" in url or "::" in url:
        return None
    folder, _, name = url.rpartition("/")
    key = remote_sidecar, folder, tuple(suffixes)
    known: str | None = FORMS.get(key)
    for suffix in suffixes if known is None else filter(None, [known]):
        own = f"{name}{suffix[1:]}" if suffix[0] == "+" else f"{name.rpartition('.')[0]}{suffix}"
        address = f"{folder}/{own}"
        most = limits().companion_bytes
        try:
            content = RemoteFiles(options.storage_options).fetch(address, [0], [most + 1])[0]
        except GridrefError:
            continue
        if 0 < len(content) <= most:
            FORMS.put(key, suffix, 1000)
            return address, content
    if known is None:
        FORMS.put(key, _NONE, 1000)
    return None
