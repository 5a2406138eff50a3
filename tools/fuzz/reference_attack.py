"""Hostile kerchunk references: strange values anywhere, and addresses of what nobody allowed."""

from __future__ import annotations

import copy
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

import gridref
from gridref.errors import GridrefError

__all__ = ["attack_references", "make_references"]

SECRET = bytes([0xAA]) * 16
SECONDS = 10
_STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**70, 1.5, 1e300, "", "x" * 100_000, "\ud800", "a/b", "\0",
    "..", "base64:!!", "{{u}}", "{{ u * 99999999 }}", "{{ [i for i in range(9)] }}", [], {}, [[]],
    ["", 0, -1], "i8", "<U99999999", "|O", {"id": "zlib"}, {"id": "gridref.nothing"}, [2**62] * 2,
)  # fmt: skip
_ADDRESSES = (
    "{secret}", "file://{secret}", "../secret/s.bin", "link.bin", "simplecache::file://{secret}",
    "dir://s.bin::file://{folder}", "reference://a::{secret}", "zip://s.bin::{secret}",
    "http://169.254.169.254/s.bin", "http://localhost:1/s.bin", "memory://s.bin", "{{{{t}}}}",
    "/dev/zero", "{folder}", "", "\0", "https://u:p@localhost:1/s",
)  # fmt: skip


def make_references(folder: Path) -> dict[str, Any]:
    """References beside their file, and a file elsewhere that they must not read."""
    inside, outside = folder / "in", folder / "secret"
    inside.mkdir()
    outside.mkdir()
    (inside / "a.bin").write_bytes(bytes(range(32)))
    (outside / "s.bin").write_bytes(SECRET * 2)
    os.symlink(outside / "s.bin", inside / "link.bin")
    array = {
        "shape": [16], "chunks": [8], "dtype": "<i2", "fill_value": 0, "order": "C",
        "filters": None, "compressor": None, "zarr_format": 2,
    }  # fmt: skip
    refs = {".zgroup": {"zarr_format": 2}, "v/.zarray": array, "v/.zattrs": {"u": "m"}}
    refs |= {"v/0": ["{{u}}", 0, 16]}
    gen = {"key": "v/{{i}}", "url": "{{u}}", "offset": "{{i * 16}}", "length": "16"}
    gen["dimensions"] = {"i": {"start": 1, "stop": 2}}
    templates = {"u": "a.bin", "t": str(outside / "s.bin")}
    return {"version": 1, "templates": templates, "gen": [gen], "refs": refs}


def attack_references(references: dict[str, Any], folder: Path, seed: int) -> str | None:
    """Change references somewhere, scan them and read: what broke, if anything did."""
    rng, changed = random.Random(seed), copy.deepcopy(references)
    for _ in range(rng.randint(1, 3)):
        _change(changed, rng, folder)
    path = folder / "in" / f"{seed}.json"
    path.write_text(json.dumps(changed))
    began = time.monotonic()
    try:
        group = gridref.scan(path)
        for array in group.all_arrays().values():
            corner = tuple(slice(0, 4) for _ in array.shape)
            if SECRET[:4] in np.asarray(array[corner]).tobytes():
                return f"it read what is not allowed: {json.dumps(changed)[:300]}"
    except GridrefError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        path.unlink()
    spent = time.monotonic() - began
    return f"it took {spent:.0f} s" if spent > SECONDS else None


def _change(document: Any, rng: random.Random, folder: Path) -> None:
    places = _places(document)
    if not places:
        return
    parent, key = rng.choice(places)
    kind = rng.randrange(4)
    if kind == 0:
        address = rng.choice(_ADDRESSES)
        parent[key] = address.format(secret=folder / "secret" / "s.bin", folder=folder / "secret")
    elif kind == 1:
        del parent[key]
    elif kind == 2 and isinstance(parent, dict):
        parent[rng.choice(["", "v", "v/1", "../x", ".zarray", "dtype", "\ud800"])] = parent.pop(key)
    else:
        parent[key] = copy.deepcopy(rng.choice(_STRANGE))


def _places(node: Any) -> list[tuple[Any, Any]]:
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    places = [(node, key) for key in keys]
    for key in keys:
        if isinstance(node[key], dict | list):
            places += _places(node[key])
    return places
