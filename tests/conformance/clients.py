"""Zarr clients, each as one function: address, path, selection and options -> values."""

from __future__ import annotations

import base64
import json
import multiprocessing
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.programs import WEB

READ = Path(__file__).parent / "read.mjs"

Selection = tuple[slice, ...] | None
Options = Mapping[str, Any] | None
"""Options of the fsspec filesystem; None for addresses of a server."""
Read = Callable[[str, str, Selection, Options], NDArray[Any]]
THROUGH_FSSPEC = " through fsspec"
"""Ends the names of the clients that read ``gridref::`` addresses, without a server."""


@dataclass(frozen=True)
class Client:
    """A client and what it is known to read.

    Attributes
    ----------
    name
        Shown in the table.
    read
        Reads an array.
    rectilinear, sharded, numcodecs, strings
        Whether it reads such grids, shards, codecs named ``numcodecs.*``, and strings.
    """

    name: str
    read: Read
    rectilinear: bool = True
    sharded: bool = True
    numcodecs: bool = True
    strings: bool = True

    @property
    def needs_server(self) -> bool:
        """Whether it reads over HTTP."""
        return not self.name.endswith(THROUGH_FSSPEC)

    def should_read(self, document: Mapping[str, Any]) -> bool:
        """Whether it is known to read an array with this ``zarr.json``."""
        text = json.dumps(document["codecs"])
        return (
            (self.rectilinear or document["chunk_grid"]["name"] == "regular")
            and (self.sharded or "sharding_indexed" not in text)
            and (self.numcodecs or "numcodecs." not in text)
            and (self.strings or document["data_type"] != "string")
        )


def _zarr(
    url: str, path: str, selection: Selection, options: Options, **config: Any
) -> NDArray[Any]:
    import zarr

    with zarr.config.set({"array.rectilinear_chunks": True, **config}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.open_group(
            url, mode="r", zarr_format=3, storage_options=None if options is None else dict(options)
        )
        array = group[path]
        return np.asarray(array[... if selection is None else selection])


def _zarr_fused(url: str, path: str, selection: Selection, options: Options) -> NDArray[Any]:
    pipeline = "zarr.core.codec_pipeline.FusedCodecPipeline"
    return _zarr(url, path, selection, options, **{"codec_pipeline.path": pipeline})


def _zarrs(url: str, path: str, selection: Selection, options: Options) -> NDArray[Any]:
    import zarrs

    assert zarrs is not None
    pipeline = "zarrs.ZarrsCodecPipeline"
    return _zarr(url, path, selection, options, **{"codec_pipeline.path": pipeline})


def _xarray(
    url: str,
    path: str,
    selection: Selection,
    options: Options,
    consolidated: bool = True,
    chunks: Any = None,
) -> NDArray[Any]:
    import xarray as xr
    import zarr

    group, _, name = path.rpartition("/")
    with zarr.config.set({"array.rectilinear_chunks": True}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = xr.open_zarr(
            url,
            group=group or None,
            consolidated=consolidated,
            mask_and_scale=False,
            chunks=chunks,
            zarr_format=3,
            storage_options=None if options is None else dict(options),
        )
        variable = dataset[name].variable
        return np.asarray(variable[... if selection is None else selection].values)


def _xarray_plain(url: str, path: str, selection: Selection, options: Options) -> NDArray[Any]:
    return _xarray(url, path, selection, options, consolidated=False)


def _dask(url: str, path: str, selection: Selection, options: Options) -> NDArray[Any]:
    return _xarray(url, path, selection, options, chunks={})


def _tensorstore(url: str, path: str, selection: Selection, _: Options) -> NDArray[Any]:
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": f"{url}/{path}/"}
    array = tensorstore.open(spec, read=True).result()
    return np.asarray(array[... if selection is None else selection].read().result())


def _gdal(url: str, path: str, selection: Selection, _: Options) -> NDArray[Any]:
    import rasterio
    from rasterio.windows import Window

    window = None
    if selection is not None:
        rows, columns = selection
        window = Window.from_slices(rows, columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"VSI_CACHE": "FALSE", "CPL_VSIL_CURL_CACHE_SIZE": "16384"}
        with rasterio.Env(**settings), rasterio.open(f'ZARR:"/vsicurl/{url}/{path}"') as image:
            return np.asarray(image.read(1, window=window))


ON_FSSPEC: Mapping[str, Read] = {
    "zarr-python": _zarr,
    "zarr-python, fused pipeline": _zarr_fused,
    "xarray": _xarray,
    "xarray, not consolidated": _xarray_plain,
    "dask (through xarray)": _dask,
}
"""Clients that read fsspec's addresses as well as a server's."""


class OtherProcess:
    """A process for the Python clients: some hold the GIL while they wait for the server."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes = ProcessPoolExecutor(1, mp_context=context)

    def reads(self, function: Read) -> Read:
        """The function, called in the process."""

        def read(url: str, path: str, selection: Selection, options: Options) -> NDArray[Any]:
            return self._processes.submit(function, url, path, selection, options).result(60)

        return read

    def close(self) -> None:
        """End the process."""
        self._processes.shutdown(cancel_futures=True)


class Zarrita:
    """zarrita.js in a Node process that answers line by line."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", "--input-type=module", "-e", READ.read_text()],
            cwd=WEB,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, url: str, path: str, selection: Selection, _: Options) -> NDArray[Any]:
        """Read an array."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        bounds = None if selection is None else [[part.start, part.stop] for part in selection]
        self._process.stdin.write(json.dumps({"url": f"{url}/{path}", "selection": bounds}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        if "values" in answer:
            values = np.array(answer["values"], dtype=object)
        else:
            raw = base64.b64decode(answer["base64"])
            values = np.frombuffer(raw, np.dtype(answer["dtype"]).newbyteorder("<"))
        return values.reshape(answer["shape"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@contextmanager
def all_clients() -> Iterator[tuple[Client, ...]]:
    """Every client, ready to read."""
    zarrita, python = Zarrita(), OtherProcess()
    try:
        either = {name: python.reads(function) for name, function in ON_FSSPEC.items()}
        yield (
            *(Client(name, read) for name, read in either.items()),
            Client("zarrs-python", python.reads(_zarrs)),
            Client(
                "tensorstore",
                python.reads(_tensorstore),
                rectilinear=False,
                numcodecs=False,
                strings=False,
            ),
            Client("zarrita.js", zarrita.read, rectilinear=False),
            Client(
                "GDAL",
                python.reads(_gdal),
                rectilinear=False,
                sharded=False,
                numcodecs=False,
                strings=False,
            ),
            *(Client(name + THROUGH_FSSPEC, read) for name, read in either.items()),
        )
    finally:
        zarrita.close()
        python.close()
