"""What MkDocs does for the site beyond its settings.

Made are the reference of the command line, from what ``--help`` says, the pages of the files beside
``docs/``, and the parts of the menu that list the decisions and the pages that it does not name.
What would be fetched from another server is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from gridref.faces.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "GOVERNANCE.md": "governance.md",
    "SECURITY.md": "reporting.md",
}


OUTSIDE = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio|object|embed|form)\b[^>]*"
    r"\b(?:src|href|data|action)=[\"']?((?:https?:)?//[^\s\"'>]+)"
    r"|(?:url\(|@import )[\"']?((?:https?:)?//[^)\"']+)"
    r"|class=[\"']?(mermaid)"
)
"""What a browser would fetch from elsewhere; the theme fetches what draws Mermaid's diagrams."""


def on_config(config: Any) -> Any:
    """Complete the menu: it names the folder of decisions only, and may lack pages."""
    docs = ROOT / "docs"
    _replace(config.nav, "decisions/", _entries(sorted(docs.glob("decisions/*.md"))))
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    unnamed = [page for page in sorted(docs.rglob("*.md")) if _address(page) not in named]
    if unnamed:
        config.nav.append({"More": _entries(unnamed)})
    return config


def on_post_build(config: Any) -> None:
    """Refuse a site that needs other servers."""
    for path in Path(config.site_dir).rglob("*"):
        if path.suffix in (".html", ".css"):
            found = OUTSIDE.search(path.read_text("utf-8"))
            if found is not None:
                raise PluginError(f"{path} would fetch {found[1] or found[2] or found[3]}")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    made = {"reference/command-line.md": command_line()}
    made |= {page: _from_docs((ROOT / name).read_text("utf-8")) for name, page in BESIDE.items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the files beside ``docs/`` lead to their pages."""
    for name, page in BESIDE.items():
        markdown = markdown.replace(f"](../{name}", f"]({page}")
    return markdown


def command_line() -> str:
    """Every command with its help, arguments and options, as Markdown."""
    root: Any = typer.main.get_command(app)
    parts = [
        "# Command line\n",
        f"{root.help}\n",
        "`--help` shows the common options of a command, `--help-all` shows all.\n",
        "`gridref --explain KIND` explains an error, and `gridref --version` prints the version.\n",
        "`--debug`, anywhere on the line, shows tracebacks.\n",
    ]
    for name, command in sorted(root.commands.items()):
        parts += [f"## gridref {name}\n", *_command(command)]
    return "\n".join(parts)


def _command(command: Any) -> Iterator[str]:
    text, _, examples = (command.help or "").partition("Examples\n--------\n")
    yield f"{text.strip()}\n"
    lines = examples.splitlines()
    shown = [line.strip() for line in lines if line.startswith("    ")]
    if shown:
        yield "\n".join(["```text", *shown, "```\n"])
    yield "\n".join(line for line in lines if not line.startswith("    ")).strip() + "\n"
    rows = [_row(each) for each in command.params if not getattr(each, "hidden", False)]
    yield "\n".join(["| | takes | |", "|---|---|---|", *rows, ""])


def _row(parameter: Any) -> str:
    """A row of the table of a command's arguments and options."""
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    takes = parameter.metavar or _takes(parameter.type_descriptor.annotation)
    text = re.sub(r"([*_<>])", r"\\\1", " ".join((parameter.help or "").split()))
    if parameter.show_default and isinstance(parameter.default, int | str) and takes:
        text += f" Default: {parameter.default}."
    cells = (", ".join(f"`{name}`" for name in names), takes, text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _takes(kind: Any) -> str:
    """What an option takes, in words; empty for one that is only given or not."""
    members = [each for each in get_args(kind) if each is not type(None)] or [kind]
    words = {bool: "", int: "number", float: "number"}
    return words.get(members[0], "text")


def _from_docs(text: str) -> str:
    """A page of the root, with its links as seen from docs/."""
    for name, page in BESIDE.items():
        text = text.replace(f"]({name})", f"]({page})")
    return re.sub(r"\]\(docs/", "](", text)


def _entries(pages: list[Path]) -> list[dict[str, str]]:
    """Entries of the menu: the first line of each page, and its address."""
    titles = [page.read_text("utf-8").partition("\n")[0].removeprefix("# ") for page in pages]
    return [{title: _address(page)} for title, page in zip(titles, pages, strict=True)]


def _address(page: Path) -> str:
    return page.relative_to(ROOT / "docs").as_posix()


def _replace(nav: list[dict[str, Any]], wanted: str, by: list[Any]) -> None:
    for entry in nav:
        for title, value in entry.items():
            if value == wanted:
                entry[title] = by
            elif isinstance(value, list):
                _replace(value, wanted, by)
