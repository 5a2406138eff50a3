"""What is loaded when: heavy packages wait until they are needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile

import gridref

HEAVY = {
    "dask", "fsspec", "h5py", "imagecodecs", "numcodecs", "pandas", "pyarrow", "tifffile",
    "xarray", "zarr",
}  # fmt: skip


def loaded_by(code: str, cwd: Path) -> set[str]:
    """Top-level names of the packages that a new process has loaded after running some code."""
    tell = "import sys, json; print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tell}"],
        cwd=cwd, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imports")
    with h5py.File(folder / "a.h5", "w") as file:
        file["v"] = np.arange(6.0)
    tifffile.imwrite(folder / "a.tif", np.arange(64, dtype=np.uint8).reshape(8, 8), tile=(16, 16))
    return folder


def test_importing_gridref_loads_nothing_heavy(folder: Path) -> None:
    code = "import gridref, gridref.testing; gridref.__version__; gridref.errors.ScanError"
    loaded = loaded_by(code, folder)
    assert not loaded & {*HEAVY, "numpy", "rich", "typer", "hypothesis", "pytest"}
    assert "gridref" in loaded


def test_help_loads_nothing_heavy(folder: Path) -> None:
    code = (
        "import sys\n"
        "from gridref.faces.cli import main\n"
        "for sys.argv[1:] in (['--help'], ['build', '--help'], ['--version']):\n"
        "    try: main()\n"
        "    except SystemExit: pass"
    )
    assert not loaded_by(code, folder) & {*HEAVY, "numpy"}


def test_building_and_asking_a_catalog_loads_no_xarray_and_no_pandas(folder: Path) -> None:
    ask = "opened['v'][...], opened.chunks('v'), opened.sources(), opened.report()"
    code = (
        "import gridref; gridref.build('a.h5', 'a.gridref');"
        f"opened = gridref.open_catalog('a.gridref'); {ask}, opened.history()"
    )
    assert not loaded_by(code, folder) & {"dask", "h5py", "pandas", "tifffile", "xarray", "zarr"}


def test_readers_of_a_format_are_loaded_with_a_file_of_it(folder: Path) -> None:
    scanned = "import gridref; group = gridref.scan({!r})"
    hdf5, tiff = (loaded_by(scanned.format(name), folder) for name in ("a.h5", "a.tif"))
    assert not hdf5 & {"h5py", "tifffile", "xarray", "zarr", "pandas"}
    assert "tifffile" in tiff
    assert not tiff & {"h5py", "pyarrow", "xarray", "zarr", "pandas"}


def test_a_local_scan_loads_only_what_scans(folder: Path) -> None:
    code = (
        "import gridref; group = gridref.scan('a.h5'); import sys;"
        " assert not [n for n in ('combine', 'catalog', 'serve') if f'gridref.{n}' in sys.modules];"
        " assert 'multiprocessing.connection' not in sys.modules;"
        " assert group['v'][2] == 2"
    )
    assert not loaded_by(code, folder) & {"asyncio", "fsspec", "pyarrow"}


def test_info_of_a_catalog_loads_nothing_that_reads_values(folder: Path) -> None:
    gridref.build(folder / "a.h5", folder / "shown.gridref")
    code = (
        "import sys; sys.argv[1:] = ['info', 'shown.gridref']\n"
        "from gridref.faces.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "read = {'gridref.' + n for n in ('combine', 'codecs', 'serve.reader', 'api.scan')}\n"
        "assert not {*read, 'multiprocessing.connection', 'rich.progress'} & {*sys.modules}"
    )
    unwanted = {"asyncio", "fsspec", "imagecodecs", "numcodecs", "pandas", "xarray", "zarr"}
    assert not loaded_by(code, folder) & unwanted


@pytest.mark.long
def test_original_readers_are_loaded_with_a_file_to_compare(folder: Path) -> None:
    verified = "import gridref; assert gridref.verify(gridref.scan({!r})).n_chunks"
    hdf5, tiff = (loaded_by(verified.format(name), folder) for name in ("a.h5", "a.tif"))
    assert "h5py" in hdf5
    assert "tifffile" not in hdf5
    assert "tifffile" in tiff
    assert "h5py" not in tiff


WITHOUT_H5PY = """
import sys
sys.modules["h5py"] = None
from gridref.faces.cli import main
for command in ("build a.h5 -o h5.gridref", "build a.tif -o tif.gridref", "verify tif.gridref"):
    sys.argv[1:] = command.split()
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
sys.argv[1:] = ["verify", "h5.gridref"]
main()
"""


def test_without_h5py_only_comparing_hdf5_files_fails(folder: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_H5PY]
    refused = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    (message,) = refused.stderr.splitlines()[2:]  # after those of the builds
    assert "comparing with HDF5 files needs h5py: pip install 'gridref[verify]'" in message


@pytest.mark.long
def test_without_h5py_the_demonstration_says_what_it_left_out(tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.modules['h5py'] = None;"
        " runpy.run_module('gridref.demo', run_name='__main__')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "comparing needs h5py: pip install 'gridref[verify]'" in done.stdout
    assert "0 chunks differ" in done.stdout  # tiles are compared with tifffile


@pytest.mark.long
def test_no_package_hides_behind_a_call_of_its_name(folder: Path) -> None:
    """`gridref.scan` is a call, whatever is imported before or after it."""
    code = (
        "import gridref.formats.hdf5.groups, gridref.catalog, gridref.combine.mosaic\n"
        "import gridref\n"
        "assert gridref.scan('a.h5')['v'][2] == 2\n"
        "import gridref.formats.hdf5, gridref.api.scan\n"
        "for name in gridref.__all__:\n"
        "    if name not in ('errors', '__version__'):\n"
        "        assert callable(getattr(gridref, name)), name"
    )
    loaded_by(code, folder)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("module", "package"),
    [("strategies", "hypothesis"), ("codecs", "pytest"), ("formats", "pytest")],
)
def test_test_helpers_name_the_extra_that_is_missing(module: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import gridref.testing.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: gridref.testing.{module} needs {package}: pip install gridref[test]"
    )
