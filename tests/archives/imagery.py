"""Images: satellite tiles in two zones, wells of a plate."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import rasterio
import tifffile
import xarray as xr
from astropy.io import fits
from rasterio.transform import from_origin

from tests.archives.archive import Archive, field_of
from tests.hdf4_files import library_values, modis_tile, write_structures
from tests.jp2_files import read_jp2, write_product

__all__ = ["channels", "exposures", "modis", "plate", "products", "sentinel", "wells"]

N_PIXELS = 64


def sentinel(folder: Path) -> Archive:
    """Tiles as COGs: a file for each tile, date and band; two UTM zones; some are missing."""
    origins = {"32UQD": (32632, 0), "32URD": (32632, 1), "33UUU": (33, 0)}
    origins["33UUU"] = (32633, 0)
    dates, bands = ("20240305", "20240301", "20240310"), ("B02", "B03")
    files = []
    for tile, (epsg, column) in origins.items():
        for date in dates:
            if (tile, date) == ("32URD", "20240305"):
                continue  # clouds
            for band in bands:
                numbers = (field_of(tile + date + band, N_PIXELS, N_PIXELS) * 10).astype("u2")
                path = folder / f"T{tile}_{date}_{band}.tif"
                with rasterio.open(
                    path,
                    "w",
                    driver="COG",
                    width=N_PIXELS,
                    height=N_PIXELS,
                    count=1,
                    dtype="uint16",
                    crs=f"EPSG:{epsg}",
                    transform=from_origin(600000 + column * N_PIXELS * 10, 5300000, 10, 10),
                    nodata=0,
                    blocksize=128,
                    compress="deflate",
                    overviews="none",
                ) as file:
                    file.write(numbers, 1)
                files.append(path)

    def expected() -> dict[str, xr.Dataset]:
        found: dict[str, xr.Dataset] = {}
        for zone in (32632, 32633):
            tiles = {tile: column for tile, (epsg, column) in origins.items() if epsg == zone}
            shape = (len(dates), N_PIXELS, N_PIXELS * (1 + max(tiles.values())))
            layers = {}
            for band in bands:
                cube = np.full(shape, np.nan, "f4")
                for tile, column in tiles.items():
                    for k, date in enumerate(sorted(dates)):
                        path = folder / f"T{tile}_{date}_{band}.tif"
                        if path.exists():
                            with rasterio.open(path) as file:
                                part = slice(column * N_PIXELS, (column + 1) * N_PIXELS)
                                cube[k, :, part] = file.read(1)
                layers[band] = xr.DataArray(cube, dims=("time", "y", "x"))
            found[f"epsg_{zone}"] = xr.Dataset(layers)
        return found

    return Archive("sentinel", tuple(files), expected, pattern="*.tif")


def products(folder: Path) -> Archive:
    """Products of Sentinel-2: SAFE folders of JPEG 2000; three resolutions, three dates."""
    dates = ("20240306", "20240301", "20240311")
    bands = {10: ("B02", "TCI"), 20: ("B02", "SCL"), 60: ("B01",)}
    files = [write_product(folder, date=date, bands=bands) for date in dates]

    def expected() -> dict[str, xr.Dataset]:
        found: dict[str, xr.Dataset] = {}
        for resolution, names in bands.items():
            layers = {}
            for band in names:
                images = [
                    read_jp2(next(product.rglob(f"*_{band}_{resolution}m.jp2"))).squeeze()
                    for product in sorted(files)
                ]
                dims = ("time", "band", "y", "x") if images[0].ndim == 3 else ("time", "y", "x")
                layers[band] = xr.DataArray(np.stack(images), dims=dims)
            found[f"{resolution}m"] = xr.Dataset(layers)
        return found

    return Archive("safe", tuple(files), expected, pattern="*.SAFE")


def modis(folder: Path) -> Archive:
    """Tiles of MODIS: HDF-EOS2 in HDF4, a file for each tile and day; one is missing."""
    days, columns = (1, 17, 33), (18, 19)
    names = ("NDVI", "pixel_reliability")
    files = []
    for day in days:
        for column in columns:
            if (day, column) == (17, 19):
                continue
            numbers = {
                name: (field_of(f"{name}{day}{column}", 24, 24) * 10).astype("i2") for name in names
            }
            fields = {name: (("YDim", "XDim"), numbers[name]) for name in names}
            grid = {"fields": fields, **modis_tile(column, 4)}
            path = folder / f"MOD13A2.A2020{day:03}.h{column}v04.061.2020{day + 16:03}084512.hdf"
            attrs = {"_FillValue": -3000, "units": "NDVI"}
            write_structures(path, {"MODIS_Grid_16DAY_1km_VI": grid}, deflate=6, attrs=attrs)
            files.append(path)

    def expected() -> dict[str, xr.Dataset]:
        layers = {name: np.full((len(days), 24, 48), np.nan, "f4") for name in names}
        for path in files:
            column = columns.index(int(path.name.partition(".h")[2][:2]))
            day = days.index(int(path.name[13:16]))
            for name, values in library_values(path).items():
                layers[name][day, :, 24 * column : 24 * (column + 1)] = values
        dims = ("time", "y", "x")
        found = {name: xr.DataArray(cube, dims=dims) for name, cube in layers.items()}
        return {"": xr.Dataset(found)}

    return Archive("modis", tuple(files), expected, pattern="*.hdf")


def plate(folder: Path) -> Archive:
    """Wells of a plate: two fields each, OME-TIFF with two channels; one field is missing."""
    wells, fields = ("A1", "A2", "B1", "B2"), (0, 1)
    files = []
    for well in wells:
        for number in fields:
            if (well, number) == ("B2", 1):
                continue
            path = folder / f"plate_{well}_f{number}.ome.tif"
            numbers = (field_of(f"{well}{number}", 2, 32, 48) * 10).astype("u2")
            tifffile.imwrite(
                path,
                numbers,
                photometric="minisblack",
                tile=(16, 16),
                compression="zlib",
                metadata={"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP"]}},
            )
            files.append(path)

    def expected() -> dict[str, xr.Dataset]:
        cube = np.full((len(wells), len(fields), 2, 32, 48), np.nan, "f4")
        for i, well in enumerate(wells):
            for number in fields:
                path = folder / f"plate_{well}_f{number}.ome.tif"
                if path.exists():
                    cube[i, number] = tifffile.imread(path)
        dims = ("well", "field", "c", "y", "x")
        return {"": xr.Dataset({"image": xr.DataArray(cube, dims=dims)})}

    pattern = "plate_{well}_f{field:d}.ome.tif"
    return Archive(
        "plate", tuple(files), expected, {"pattern": pattern}, ("--pattern", pattern), "*.ome.tif"
    )


def wells(folder: Path) -> Archive:
    """Wells of a screen: two sites each; the names hold well and site."""
    files = []
    for well in ("A01", "A02", "B01"):
        for site in (1, 2):
            numbers = (field_of(f"{well}{site}", 2, 32, 48) * 10).astype("u2")
            path = folder / f"{well}_s{site}.ome.tif"
            tifffile.imwrite(path, numbers, photometric="minisblack", metadata={"axes": "CYX"})
            files.append(path)

    def expected() -> dict[str, xr.Dataset]:
        found = {}
        for path in files:
            row, column, site = path.name[0], path.name[2], path.name[5]
            image = xr.DataArray(tifffile.imread(path), dims=("c", "y", "x"))
            found[f"{row}/{column}/{site}"] = xr.Dataset({"image": image})
        sites = [
            xr.concat([found[f"{w}/{s}"] for s in (1, 2)], "field") for w in ("A/1", "A/2", "B/1")
        ]
        cube = xr.concat(sites, "well")
        return {**found, "cube": cube.assign_coords(well=["A01", "A02", "B01"], field=[1, 2])}

    return Archive("wells", tuple(files), expected, pattern="*.ome.tif")


def channels(folder: Path) -> Archive:
    """Wells of a screen, a file a channel: the names hold well, site and wavelength."""
    files, planes = [], {}
    for well, site, wave in itertools.product(("A01", "B02"), (1, 2), (1, 2)):
        planes[well, site, wave] = (field_of(f"{well}{site}{wave}", 32, 48) * 10).astype("u2")
        files.append(folder / f"screen_{well}_s{site}_w{wave}.ome.tif")
        tifffile.imwrite(files[-1], planes[well, site, wave], metadata={"axes": "YX"})

    def expected() -> dict[str, xr.Dataset]:
        stored = np.array(
            [[[planes[w, s, c] for c in (1, 2)] for s in (1, 2)] for w in ("A01", "B02")]
        )
        image = xr.DataArray(stored, dims=("well", "field", "c", "y", "x"))
        labels = {"well": ["A01", "B02"], "field": [1, 2], "c": [1, 2]}
        return {"cube": xr.Dataset({"image": image}, labels)}

    return Archive("channels", tuple(files), expected, pattern="*.ome.tif")


def exposures(folder: Path) -> Archive:
    """Exposures of a camera: FITS, some compressed by fpack's RICE_1; times are in DATE-OBS."""
    files = []
    for hour in (3, 1, 2, 4):
        counts = (field_of(f"exposure{hour}", N_PIXELS, N_PIXELS) * 100).astype("u2")
        header = fits.Header({"DATE-OBS": f"2024-03-01T0{hour}:15:00", "EXPTIME": 30.0})
        header.update({"BUNIT": "adu", "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN"})
        image = fits.PrimaryHDU(counts, header)
        hdus = fits.HDUList([image])
        if hour > 2:
            tiles = fits.CompImageHDU(counts, image.header, tile_shape=(16, N_PIXELS))
            hdus = fits.HDUList([fits.PrimaryHDU(), tiles])
        files.append(folder / f"frame_{hour:03}.fits{'.fz' if hour > 2 else ''}")
        hdus.writeto(files[-1])

    def expected() -> dict[str, xr.Dataset]:
        ordered = sorted(files)
        times = np.array([fits.getval(f, "DATE-OBS", ext=-1) for f in ordered], "M8[ns]")
        images = np.stack([fits.getdata(path) for path in ordered])
        return {"": xr.Dataset({"PRIMARY": (("time", "y", "x"), images)}, {"time": times})}

    labels = "time=attribute:DATE-OBS"
    return Archive(
        "exposures",
        tuple(files),
        expected,
        {"labels": dict([labels.split("=")])},
        ("--labels", labels),
        "*.f*",
    )
