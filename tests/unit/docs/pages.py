"""Reads the documentation as a test sees it: pages, headings, links, blocks of code, commands, tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

from api.cli.main import cli

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^```(.*)$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
PROGRAM = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?ratchet(?= |$)")
ENDS = frozenset({"|", "<", ">", "&&", ";", "||"})


@dataclass(frozen=True)
class Block:
    """A block of code with the language of its fence, empty for an indented one."""

    page: Path
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A call of `ratchet` as written in a page, and its words after the program."""

    page: Path
    line: int
    written: str
    words: tuple[str, ...]
    form: bool
    """It shows the form of a call (placeholders, optional parts), not a call."""


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def blocks(page: Path) -> list[Block]:
    """Fenced and indented blocks of a page, in order."""
    found: list[Block] = []
    fence: tuple[int, str] | None = None
    held: list[str] = []
    start = 0
    for number, line in enumerate([*page.read_text("utf-8").splitlines(), ""], 1):
        mark = FENCE.match(line)
        if fence is not None and mark:
            found.append(Block(page, fence[0], fence[1], "\n".join(held)))
            fence, held = None, []
        elif mark:
            fence = number, mark[1].strip()
        elif fence is not None:
            held.append(line)
        elif line.startswith("    ") or (held and not line.strip()):
            start = start if held else number
            held.append(line)
        elif held:
            found.append(Block(page, start, "", _dedented(held)))
            held = []
    if held and any(held):
        found.append(Block(page, start, "", _dedented(held)))
    return found


def _dedented(lines: list[str]) -> str:
    margin = min(len(text) - len(text.lstrip()) for text in lines if text.strip())
    return "\n".join(text[margin:] for text in lines).strip("\n")


def commands(page: Path) -> Iterator[Command]:
    """Every call of `ratchet` in the blocks and in the running text of a page."""
    for block in blocks(page):
        for offset, line in enumerate(block.text.splitlines()):
            for part in re.split(r"&& (?=ratchet|exec)", line.strip()):
                if PROGRAM.match(part):
                    yield _command(page, block.line + offset, part)
    in_blocks = {text.strip() for b in blocks(page) for text in b.text.splitlines()}
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.strip() in in_blocks:
            continue
        for span in SPAN.findall(line):
            if PROGRAM.match(span):
                yield _command(page, number, span)


def _command(page: Path, line: int, written: str) -> Command:
    bare = re.sub(r"\$\([^)]*\)", "X", written.split("  #")[0])
    words = shlex.split(PROGRAM.sub("", bare, count=1))
    cut = next((i for i, word in enumerate(words) if word in ENDS), len(words))
    words = words[:cut]
    form = any(re.search(r"^\[|\]$|\.\.\.$", w) or re.fullmatch(r"[A-Z][A-Z_-]+", w) for w in words)
    cleaned = [w.strip("[]") for w in words if w.strip("[]") not in {"...", "OPTION..."}]
    return Command(page, line, written, tuple(cleaned), form)


def tree() -> dict[str, click.Command]:
    """Every command and group by its path, like `study create`; the root is not among them."""

    def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
        if path:
            yield path, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from walk(inner, f"{path} {name}".strip())

    return dict(walk(cli, ""))


def sections(page: Path) -> dict[str, str]:
    """The text below each heading, by heading, up to the next heading of any level; code is no heading."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    fenced = False
    for line in page.read_text("utf-8").splitlines():
        fenced = fenced != bool(FENCE.match(line))
        heading = None if fenced else re.match(r"^#+ (.+)$", line)
        if heading:
            current = found.setdefault(heading[1], [])
        else:
            current.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def rows(text: str, header: str) -> list[list[str]]:
    """The rows of all tables in `text` whose first column has this header."""
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip("|"))]
        if cells[0] == header:
            inside = True
        elif inside and not set(cells[0]) <= {"-", ":"}:
            found.append(cells)
    return found


def slugs(page: Path) -> set[str]:
    """Anchors of a page's headings, as the usual renderers make them."""
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in sections(page)}


def links(page: Path) -> list[str]:
    """Targets of the links that stay inside the repository."""
    return [t for t in LINK.findall(page.read_text("utf-8")) if not re.match(r"[a-z]+:", t)]
