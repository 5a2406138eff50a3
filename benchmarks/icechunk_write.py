"""1,000,000 references of 1,000 files written to Icechunk, by gridref and by VirtualiZarr.

Both write the same chunks into a repository in memory; the commit is the same for both and is not
timed. gridref writes the time of change of every file, VirtualiZarr one moment for all.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import icechunk
import numpy as np
import xarray as xr
from virtualizarr.manifests import ChunkManifest, ManifestArray
from zarr.core.metadata.v3 import ArrayV3Metadata

from gridref.interchange import to_icechunk
from gridref.io import describe_source
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest as Manifest
from gridref.serve.objects import KeySpace
from gridref.serve.views import View, ViewOptions

N_FILES, N_IN_EACH, CHUNK_BYTES = 1_000, 1_000, 4_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        group = cube(Path(folder))
        virtual = as_virtualizarr(group)
        seconds: dict[str, list[float]] = {"gridref": [], "virtualizarr": []}
        for _ in range(3):
            session = new_session(folder)
            start = time.perf_counter()
            to_icechunk(group, session)
            seconds["gridref"].append(time.perf_counter() - start)
            session = new_session(folder)
            start = time.perf_counter()
            virtual.vz.to_icechunk(session.store)
            seconds["virtualizarr"].append(time.perf_counter() - start)
    best = {name: min(taken) for name, taken in seconds.items()}
    for name, taken in best.items():
        print(f"{name:14} {taken:6.2f} s")
    print(f"VirtualiZarr takes {best['virtualizarr'] / best['gridref']:.1f} times as long")


def cube(folder: Path) -> VirtualGroup:
    """A million chunks, a thousand in each file."""
    sources = []
    for number in range(N_FILES):
        path = folder / f"{number:04}.bin"
        path.touch()
        os.truncate(path, N_IN_EACH * CHUNK_BYTES)
        os.utime(path, (number, number))
        sources.append(describe_source(str(path)))
    rows = np.arange(N_FILES * N_IN_EACH)
    manifest = Manifest.from_columns(
        sources,
        source=rows // N_IN_EACH,
        offset=rows % N_IN_EACH * CHUNK_BYTES,
        length=CHUNK_BYTES,
    )
    dtype = np.dtype("f4")
    array = VirtualArray.of_one_block(
        (N_FILES, N_IN_EACH, 1_000),
        dtype,
        encoding=Encoding((1, 1, 1_000), dtype, (bytes_codec(dtype),)),
        manifest=manifest,
        dims=("file", "chunk", "element"),
    )
    return VirtualGroup({"values": array})


def as_virtualizarr(group: VirtualGroup) -> xr.Dataset:
    """The same, as VirtualiZarr has it."""
    (manifest,) = group.arrays["values"].manifests
    assert isinstance(manifest, Manifest)
    shape = (N_FILES, N_IN_EACH, 1)
    urls = np.array(
        [f"file://{source.url}" for source in manifest.sources], np.dtypes.StringDType()
    )
    document = KeySpace(group, ViewOptions(View.NATIVE)).document("values") or {}
    array = ManifestArray(
        ArrayV3Metadata.from_dict(document),
        ChunkManifest.from_arrays(
            paths=urls[manifest.source].reshape(shape),
            offsets=manifest.offset.astype(np.uint64).reshape(shape),
            lengths=manifest.length.astype(np.uint64).reshape(shape),
        ),
    )
    return xr.Dataset({"values": (("file", "chunk", "element"), array)})


def new_session(folder: str) -> icechunk.Session:
    """A writable session of a new repository that may reference files in a folder."""
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(folder)
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{folder}/", store))
    repository = icechunk.Repository.create(icechunk.in_memory_storage(), config)
    return repository.writable_session("main")


if __name__ == "__main__":
    main()
