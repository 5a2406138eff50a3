"""The command line: `main` with its exit codes, and the list of all commands."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from gridref.errors import GridrefError, LeftOutWarning
from gridref.faces.cli.change import (
    append_command,
    overviews_command,
    prune_command,
    rechunk_command,
    refresh_command,
    relocate_command,
    remove_command,
    rollback_command,
    tag_command,
    watch_command,
)
from gridref.faces.cli.console import Console, echo, printable
from gridref.faces.cli.help import CHANGE, LOOK, MAKE, SHARE, Command, print_explanation
from gridref.faces.cli.look import (
    diff_command,
    doctor_command,
    formats_command,
    info_command,
    list_command,
    verify_command,
)
from gridref.faces.cli.make import build_command, plan_command
from gridref.faces.cli.options import spelled
from gridref.faces.cli.share import (
    copy_command,
    export_command,
    publish_command,
    serve_command,
)

app = typer.Typer(
    name="gridref",
    help="Open archives of HDF5, NetCDF, GRIB, TIFF and other files as one cube, without a copy.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

for _name, _command, _group in (
    ("build", build_command, MAKE),
    ("plan", plan_command, MAKE),
    ("info", info_command, LOOK),
    ("list", list_command, LOOK),
    ("verify", verify_command, LOOK),
    ("diff", diff_command, LOOK),
    ("formats", formats_command, LOOK),
    ("doctor", doctor_command, LOOK),
    ("append", append_command, CHANGE),
    ("watch", watch_command, CHANGE),
    ("refresh", refresh_command, CHANGE),
    ("remove", remove_command, CHANGE),
    ("relocate", relocate_command, CHANGE),
    ("rechunk", rechunk_command, CHANGE),
    ("overviews", overviews_command, CHANGE),
    ("tag", tag_command, CHANGE),
    ("rollback", rollback_command, CHANGE),
    ("prune", prune_command, CHANGE),
    ("serve", serve_command, SHARE),
    ("export", export_command, SHARE),
    ("copy", copy_command, SHARE),
    ("publish", publish_command, SHARE),
):
    app.command(_name, cls=Command, rich_help_panel=_group)(_command)

_UsageError: Any = typer.BadParameter.__mro__[1]
"""What typer raises for a line that it cannot take apart; click's own, or typer's copy of it."""


def main() -> None:
    """Run the command line.

    Our own errors print one message and give exit status 1. A command line that cannot be parsed
    gives exit status 2, and an interrupt (Ctrl-C) ends at once with exit status 130. ``--debug``,
    anywhere on the line, shows the traceback too.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    warnings.simplefilter("ignore", LeftOutWarning)  # the commands tell it themselves
    warnings.formatwarning = _one_line
    if not debug:
        os.environ.setdefault("DASK_DISTRIBUTED__LOGGING", _QUIET_DASK)
    try:
        status = app(args=arguments, prog_name="gridref", standalone_mode=False) or 0
        if status == _INTERRUPTED:  # what typer makes of a KeyboardInterrupt
            _end_at_once(_interrupted(arguments), status)
        sys.stdout.flush()
        sys.exit(status)
    except OSError as error:
        if debug or error.errno not in _FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail
        _end(f"writing failed: {error.strerror}. Free space, then run the same command again", 1)
    except GridrefError as error:
        if debug:
            raise
        _end(spelled(error.explained), 1)
    except _UsageError as error:
        if not arguments:
            sys.exit(2)  # the help that was shown says it all
        if arguments[0] == "replace":
            _end(
                "there is no command replace: gridref refresh CATALOG FILE --by NEW does it",
                2,
            )
        path = error.ctx.command_path if error.ctx is not None else "gridref"
        _end(f"{error.format_message()} (see {path} --help)", 2)


_QUIET_DASK = "{'distributed': 'critical', 'distributed.client': 'critical'}"
"""Errors of a cluster are reported in our words, without Dask's tracebacks."""


def _one_line(message: Warning | str, *_place: Any, **_line: Any) -> str:
    return printable(f"warning: {message}\n")


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What a full disk says, mostly where the output goes: files have errors of ours."""

_INTERRUPTED = 128 + signal.SIGINT
"""Exit status that shells give to a program that was interrupted."""


def _interrupted(arguments: Sequence[str]) -> str:
    """That the command was interrupted, and how to go on where it scans files."""
    if arguments[:1] in (["copy"], ["rechunk"]):
        return "interrupted: run the same command again to go on"
    if not {"build", "plan", "append", "refresh"}.intersection(arguments[:1]):
        return "interrupted"
    keeps = any(argument.partition("=")[0] == "--work" for argument in arguments)
    kept = "what was scanned is kept" if keeps else "--work FOLDER keeps what was scanned"
    return f"interrupted: run the same command again to go on ({kept})"


def _end_at_once(message: str, status: int) -> None:
    """End without waiting for threads, which may wait for servers; everything else has ended."""
    gc.collect()  # semaphores of process pools, which would be called leaked
    print(message, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


def _end(message: str, status: int) -> None:
    text = Text.assemble(("error: ", "bold red"), message)
    Console(stderr=True).print(text, soft_wrap=True)
    sys.exit(status)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gridref import __version__

        echo(f"gridref {__version__}")
        raise typer.Exit


def _explain(kind: str | None) -> None:
    if kind is not None:
        print_explanation(kind)
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    _explained: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="KIND",
            callback=_explain,
            is_eager=True,
            help="Explain an error, named at the end of its message, and what to do. all: list all"
            " names.",
        ),
    ] = None,
) -> None:
    pass
