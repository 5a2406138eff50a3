"""Let an installed gridref build, read and serve over HTTP and from S3: PYTHON DATA FOLDER.

PYTHON is the one that gridref is installed for. This script runs in the developers' environment,
with the servers of the tests, all on the loopback device. DATA has NetCDF4 files; catalogs
go to FOLDER.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.http_server import Site, serving
from tests.s3_server import s3_bucket

READ = """
import json, re, subprocess, sys
import gridref, numpy as np, xarray as xr

names, places, options = json.loads(sys.argv[1])

def built(place):
    catalog = place.partition(":")[0] + ".gridref"
    files = [place + name for name in names]
    gridref.build(files, catalog, "time", storage_options=options, overwrite=True)
    return catalog

def values(address, **how):
    with xr.open_dataset(address, decode_times=False, **how) as cube:
        return {name: variable.values for name, variable in cube.variables.items()}

def same(found, what):
    assert found.keys() == expected.keys(), what
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{what}: {name}")

catalogs = [built(place) for place in places]
expected = values(catalogs[0], engine="gridref")
assert sum(array.size for array in expected.values()) > 10_000
for catalog in catalogs[1:]:
    same(values(catalog, engine="gridref", storage_options=options), catalog)
with open("options.json", "w") as file:
    json.dump(options, file)
server = subprocess.Popen(
    [sys.executable, "-m", "gridref", "serve", *catalogs, "--port", "0", "-O", "@options.json"],
    stderr=subprocess.PIPE, text=True,
)
try:
    line = server.stderr.readline()
    address = re.match("Serving on (.*/) ", line)[1]
    for catalog in catalogs:
        name = catalog.removesuffix(".gridref")
        same(values(f"{address}{name}/portable", engine="zarr"), f"served {name}")
finally:
    server.kill()
"""


def main(python: str, data: Path, folder: Path) -> None:
    """Build the same cube of files on disk, over HTTP and from S3, and compare the values."""
    files = sorted(data.glob("*.nc"))[:3]
    site = Site({f"/{file.name}": file.read_bytes() for file in files})
    with serving(site), s3_bucket() as bucket:
        for file in files:
            address = bucket.put(file.name, file.read_bytes())
        places = [f"file://{data}/", f"{site.url}/", address.rpartition("/")[0] + "/"]
        words = json.dumps([[file.name for file in files], places, bucket.options])
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, "-c", READ, words], cwd=folder, env=plain, check=True, timeout=300)
    print("files on disk, over HTTP and from S3, and served: right")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
