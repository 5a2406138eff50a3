"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import typer
import xarray as xr
from typer.testing import CliRunner

from gridref import demo
from gridref.faces.cli import app, main
from tests.command import run_command, run_script
from tests.integration.archives import write_months


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, cwd=cwd, env={**os.environ, "COLUMNS": "160"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "data").mkdir()
    write_months(folder / "data", lengths=[31, 28, 30])
    done = run("build", "data", "--concat-dim", "time", "-o", "cube.gridref", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("arguments", [["formats"], ["--version"]])
def test_a_full_disk_under_the_output_is_one_message(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gridref", *arguments])
    with open("/dev/full", "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as end:
            main()
    assert end.value.code == 1
    assert "No space left on device. Free space" in capfd.readouterr().err


def test_one_file_needs_no_dimension(folder: Path) -> None:
    done = run("build", "data/month_00.nc", "-o", "one.gridref", "--verify", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "0 chunks differ" in done.stdout


def test_several_files_are_laid_out_by_themselves_which_is_said(folder: Path) -> None:
    done = run("build", "data/*.nc", "-o", "two.gridref", "-q", cwd=folder)
    assert done.returncode == 0
    assert "5 arrays" in done.stderr
    assert "laid out by --concat-dim time (coordinates differ along time)" in done.stderr


def test_info(folder: Path) -> None:
    done = run("info", "cube.gridref", cwd=folder)
    assert done.returncode == 0, done.stderr
    for word in ("tas", "(time: 89, lat: 13, lon: 17)", "3 of 28 to 31", "shuffle + zlib", "┃"):
        assert word in done.stdout


NAMES_FOR_TERMINALS = {
    "\x1b[2J\x1b]0;owned": r"\x1b[2J\x1b]0;owned",
    "a\u202eb\x9bc": r"a\u202eb\x9bc",
    "[/]": "[/]",
    "[red]x[/red]": "[red]x[/red]",
}


def test_names_are_no_commands_to_the_terminal(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["other"] = [1]
        for name in NAMES_FOR_TERMINALS:
            file[name] = [1]
            file[name].attrs[name] = 1
            file["other"].attrs[name] = 2
    run("build", "a.h5", "-o", "cube", cwd=tmp_path)
    shutil.copytree(tmp_path / "cube", tmp_path / "former")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["other"] = [1]
    run("build", "a.h5", "-o", "cube", "--overwrite", cwd=tmp_path)
    told = [
        run("info", "former", cwd=tmp_path),
        *(run("list", "former", table, cwd=tmp_path) for table in ("chunks", "statistics")),
        run("diff", "former", "cube", cwd=tmp_path),
    ]
    shown = {name: [done.stdout + done.stderr for done in told] for name in NAMES_FOR_TERMINALS}
    for name in NAMES_FOR_TERMINALS:
        for asked in (name, f"{name}x"):
            done = run("info", "former", asked, cwd=tmp_path)
            shown[name].append(done.stdout + done.stderr)
    for name, texts in shown.items():
        for text in texts:
            assert NAMES_FOR_TERMINALS[name] in text
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--shards", "time=30"], ["tas", "portable, regular, 3 shards"]),
        (["--shards", "blocks"], ["without shards: "]),
        (["--view", "native"], ["not shown: ", "not native"]),
        (["--view", "portable"], ["portable, regular"]),
    ],
)
def test_info_says_how_arrays_are_shown(folder: Path, options: list[str], shown: list[str]) -> None:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["info", str(folder / "cube.gridref"), *options]
    )
    assert done.exit_code == 0, done.output
    for words in shown:
        assert words in done.output


def test_verify_finds_nothing_and_then_something(folder: Path, tmp_path: Path) -> None:
    done = run("verify", "cube.gridref", "--all", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "0 chunks differ" in done.stdout
    files = write_months(tmp_path, lengths=[5], filters=[{}])
    assert run("build", str(files[0]), "-o", "x.gridref", cwd=tmp_path).returncode == 0
    table = tmp_path / "x.gridref"
    harm_offsets(table)
    done = run("verify", "x.gridref", "--all", cwd=tmp_path)
    assert done.returncode == 1
    assert "differs" in done.stdout


def harm_offsets(catalog: Path) -> None:
    """Let every reference point four bytes further on."""
    import gridref
    from gridref.api.catalog import write_catalog

    group = gridref.open_catalog(catalog)
    tas = group.arrays["tas"]
    (manifest,) = tas.manifests
    import numpy as np

    rows = manifest.take(np.arange(manifest.n_rows))
    rows.offset[:] += 4
    moved = {**group.arrays, "tas": tas.with_changes(manifests=(rows,))}
    write_catalog(gridref.VirtualGroup(moved), catalog)


def test_debug_shows_the_traceback(folder: Path) -> None:
    quiet = run("info", "nothing.gridref", cwd=folder)
    loud = run("info", "nothing.gridref", "--debug", cwd=folder)
    assert quiet.returncode == 1
    assert quiet.stderr.startswith("error: ")
    assert "Traceback" not in quiet.stderr
    assert loud.returncode != 0
    assert "Traceback" in loud.stderr


def test_formats_are_listed(tmp_path: Path) -> None:
    listed = run("formats", cwd=tmp_path).stdout
    assert "NetCDF3  .nc .cdf .nc3" in listed
    assert re.search(r"compared with +netCDF4 *\n", listed)
    rows = json.loads(run("formats", "--json", cwd=tmp_path).stdout)
    assert [row["name"].lower() for row in rows] == sorted(row["name"].lower() for row in rows)
    (tiff,) = [row for row in rows if row["name"] == "TIFF"]
    assert (tiff["names"], tiff["package"]) == ([".tif", ".tiff"], "")
    assert tiff["about"]["oracle"] == "tifffile"


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_there_are_at_most_22_commands() -> None:
    assert len(COMMANDS) <= 22


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples_and_at_most_a_dozen_options(command: str) -> None:
    short, whole = (
        CliRunner().invoke(app, [command, option], env={"COLUMNS": "200"})
        for option in ("--help", "--help-all")
    )
    assert short.exit_code == whole.exit_code == 0
    assert f"  gridref {command}" in short.output
    # Arguments of commands begin with a star or a space.
    listed = {
        text: {*re.findall(r"^│ (?:\* )? *(--[a-z-]+)", text, re.MULTILINE)} - {"--help"}
        for text in (short.output, whole.output)
    }
    assert len(listed[short.output]) <= 12
    options = {
        max(each.opts, key=len)
        for each in COMMANDS[command].params
        if each.param_type_name == "option"
    }
    assert {*listed[whole.output]} == options
    if len(options) > len(listed[short.output]):
        assert f"gridref {command} --help-all" in short.output


def test_help_all_shows_rare_options() -> None:
    for command, rare in {"build": "--max-objects", "export": "--run-dim"}.items():
        assert rare not in CliRunner().invoke(app, [command, "--help"]).output
        assert rare in CliRunner().invoke(app, [command, "--help-all"]).output


def test_help_loses_no_characters() -> None:
    shown = CliRunner().invoke(app, ["build", "--help-all"], env={"COLUMNS": "200"}).output
    for text in ("'*/2020/*.nc'", "'{model}_{member:d}_{time:%Y%m}'", "user:password@"):
        assert text in shown
    for text in ("pip install 'gridref[plot]'", "* allows everything"):
        shown = CliRunner().invoke(app, ["info", "--help-all"], env={"COLUMNS": "200"}).output
        shown += CliRunner().invoke(app, ["info", "--help"], env={"COLUMNS": "200"}).output
        assert text in shown


def test_commands_are_shown_in_four_groups() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    groups = ("Make catalogs", "Look at catalogs", "Change catalogs", "Share catalogs")
    places = [shown.index(group) for group in groups]
    assert places == sorted(places)


def test_demo(folder: Path, sample_data: Path) -> None:
    env = {**os.environ, "COLUMNS": "160", "HOME": "/dev/null"}  # nothing can be kept there
    del env["GRIDREF_STATE"]
    done = run_script(demo.__file__, "--data", sample_data, cwd=folder, env=env, seconds=120)
    assert done.returncode == 0, done.stdout
    assert "0 differ" in done.stdout


@pytest.mark.long(but=4)
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["build", "data", "-o", "x.gridref", "--jion", "outer"], 2, "No such option: --jion"),
        (["build", "data"], 2, "-o CATALOG"),
        (["plan", "data", "--tolerance", "much"], 2, "--tolerance"),
        (["serv"], 2, "Did you mean 'serve'?"),
        (["list", "cube.gridref"], 2, "name a table"),
        (["list", "cube.gridref", "chunk"], 1, "did you mean 'chunks'?"),
        (["list", "cube.gridref", "sources", "tas"], 1, "not for sources"),
        (["list", "cube.gridref", "statistics", "tsa"], 1, "did you mean 'tas'?"),
        (["info", "data/month_00.nc", "tas"], 1, "these options are for catalogs"),
        (["info", "data"], 1, "no catalog there, only a folder: `gridref plan data`"),
        (["append", "cube.gridref"], 2, "--declare DIM=FIRST/LAST"),
        (["append", "cube.gridref", "--declare", "time=1"], 1, "time=2024-01-01/2024-12-31"),
        (["refresh", "cube.gridref", "--by", "data/month_00.nc"], 2, "--by needs the file"),
        (["export", "cube.gridref"], 2, "OUTPUT"),
        (["export", "cube.gridref", "x.nc", "--append-dim", "time"], 1, "no option of an export"),
        (["export", "cube.gridref", "refs.jsn"], 1, "no export ends in '.jsn': write '.json'"),
        (["export", "cube.gridref", "cube.nc4"], 1, "write '.nc', or name the kind by --to"),
        (["build", "data", "-o", "x", "--join", "outre"], 1, "--join outre is none of"),
        (["build", "data", "-o", "x", "--x", "lon"], 1, "only for a mosaic (--mosaic)"),
        (["plan", "data", "--stack", "time"], 1, "stacking makes a new one"),
        (["build", "nothing.nc", "-o", "x.gridref"], 1, "no file matches"),
        (["build", "dtaa", "-o", "x.gridref"], 1, "no file matches 'dtaa': did you mean 'data'?"),
        (["build", "dataa/*.nc", "-o", "x.gridref"], 1, "did you mean 'data'?"),
        (["plan", "data/month_0.nc"], 1, "did you mean 'month_02.nc' or 'month_01.nc' or"),
        (["build", "data/month_00.nc", "-o", "data/month_01.nc"], 1, "a file is at this address"),
        (["append", "data/month_00.nc", "cube.gridref"], 1, "A catalog is a folder, and this is a"),
        (
            ["copy", "cube.gridref", "data/month_00.nc"],
            1,
            "the copy cannot be written: a file is at",
        ),
        (["export", "cube.gridref", "no/r.json"], 1, "of this address does not exist: make it"),
        (["export", "cube.gridref", "no/r.json"], 1, "no/r.json] (see"),  # not a draft's name
        (["plan", "data", "--max-in-flight", "0"], 1, "--max-in-flight 0 must be >= 1"),
        (["info", "cubes.gridref"], 1, "it has no gridref.json: did you mean 'cube.gridref'"),
        (["info", "cube.gridref", "--view", "natve"], 1, "did you mean 'native'?"),
        (["info", "cube.gridref", "--shards", "time=none"], 1, "time=24,lat=180"),
        (["info", "cube.gridref", "-O", "anon"], 1, "KEY=VALUE"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, arguments: list[str], status: int, message: str
) -> None:
    done = run(*arguments, cwd=folder)
    assert done.returncode == status
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (folder / "x.gridref").exists()


def test_advice_is_spelled_as_the_face_that_was_used(tmp_path: Path) -> None:
    import gridref

    (tmp_path / "a").mkdir()
    files = [str(file) for file in write_months(tmp_path / "a", lengths=[3])]
    twice = [*files, shutil.copy(files[0], tmp_path / "again.nc")]
    with pytest.raises(gridref.errors.CombineError, match="overlap='first'"):
        gridref.build(twice, tmp_path / "x.gridref", "time")
    done = run("build", *twice, "--concat-dim", "time", "-o", "x.gridref", cwd=tmp_path)
    assert done.returncode == 1
    assert "--overlap first" in done.stderr
    assert "overlap=" not in done.stderr
    shown = run("plan", *twice, "--concat-dim", "time", cwd=tmp_path)
    assert shown.returncode == 1
    assert "--overlap first" in shown.stdout
    followed = run(
        "build", *twice, "--concat-dim", "time", "--overlap", "first", "-o", "x.gridref",
        cwd=tmp_path,
    )  # fmt: skip
    assert followed.returncode == 0, followed.stderr


def test_a_misspelt_dimension_is_the_only_problem(tmp_path: Path) -> None:
    for day in range(2):
        labels = {"time": [day], "x": np.arange(2.0) + day}
        values = xr.Dataset({"tas": (("time", "x"), np.zeros((1, 2)))}, labels)
        values.to_netcdf(tmp_path / f"{day}.nc")
    refused = run_command("plan", tmp_path / "0.nc", tmp_path / "1.nc", "--concat-dim", "tmie")
    assert (refused.returncode, "did you mean 'time'?" in refused.stdout) == (1, True)
    assert "2 files, 0 drifts, 1 problem\n" in refused.stdout


def test_the_only_file_of_a_catalog_stays(tmp_path: Path) -> None:
    file, catalog = tmp_path / "a.nc", tmp_path / "a.gridref"
    xr.Dataset({"tas": ("time", [1.0])}).to_netcdf(file)
    assert run_command("build", file, "-o", catalog).returncode == 0
    refused = run_command("remove", catalog, file)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: this would remove every file of the catalog")


def test_plan_shows_stacks_and_one_file(folder: Path) -> None:
    stacked = run(
        "plan", "data/month_00.nc", "data/month_00.nc", "--stack", "member", "--json", cwd=folder
    )
    assert stacked.returncode == 0, stacked.stderr
    assert json.loads(stacked.stdout)["arrays"]["tas"]["dims"][0] == "member"
    one = run("plan", "data/month_00.nc", "--json", cwd=folder)
    assert one.returncode == 0, one.stderr
    assert json.loads(one.stdout)["arrays"]["tas"]["shape"] == [31, 13, 17]


def test_python_dash_m(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gridref", "--version"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == f"gridref {__import__('gridref').__version__}"


def test_info_draws_an_array_on_the_screen_or_as_a_picture(folder: Path) -> None:
    done = run("info", "cube.gridref", "tas", "-o", "map.svg", cwd=folder)
    assert done.returncode == 0, done.stderr
    shown = (folder / "map.svg").read_text(encoding="utf-8")
    assert "tas: time 89" in shown
    assert shown.count(">31</text>") == 1
    on_screen = run("info", "cube.gridref", "tas", cwd=folder)
    assert any(line.startswith("tas: time → 89") for line in on_screen.stdout.splitlines())
    wrong = run("info", "cube.gridref", "tass", cwd=folder)
    assert wrong.returncode == 1
    assert "did you mean 'tas'?" in wrong.stderr


def test_info_describes_a_catalog_and_an_array_as_json(folder: Path) -> None:
    import gridref

    catalog = gridref.open_catalog(folder / "cube.gridref")
    whole = json.loads(run("info", "cube.gridref", "--json", cwd=folder).stdout)
    assert whole["snapshot"] == catalog.info.snapshot
    assert whole["n_sources"] == 3
    shapes = {path: tuple(array["shape"]) for path, array in whole["arrays"].items()}
    assert shapes == {path: array.shape for path, array in catalog.all_arrays().items()}
    one = run("info", "cube.gridref", "tas", "--json", "--view", "portable", cwd=folder)
    assert list(json.loads(one.stdout)["arrays"]) == ["tas"]
    assert json.loads(one.stdout)["arrays"]["tas"]["view"] == "portable"


def test_several_arrays_are_listed(folder: Path) -> None:
    import gridref

    catalog = gridref.open_catalog(folder / "cube.gridref")
    done = run("list", "cube.gridref", "chunks", "tas", "pr", "--format", "jsonl", cwd=folder)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    expected = [len(catalog.chunks(name)) for name in ("tas", "pr")]
    assert [row["path"] for row in rows] == ["tas"] * expected[0] + ["pr"] * expected[1]
    some = run("list", "cube.gridref", "statistics", "pr", "--format", "jsonl", cwd=folder)
    assert [json.loads(line)["path"] for line in some.stdout.splitlines()] == ["pr"]


def test_completion_is_installed_for_the_shell_that_asks(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("gridref")
    done = subprocess.run(
        ["bash", "-c", f"{command} --install-completion; exit $?"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert ".bash_completions/gridref.sh" in (tmp_path / ".bashrc").read_text()


def test_completion_names_the_commands(tmp_path: Path) -> None:
    asked = {"_GRIDREF_COMPLETE": "complete_bash", "COMP_WORDS": "gridref re", "COMP_CWORD": "1"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("gridref"))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **asked},
    )
    assert {"refresh", "relocate", "remove"} <= set(done.stdout.split())
