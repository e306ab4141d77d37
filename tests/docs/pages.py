"""Code blocks of a page, run as a reader would: in order, in one program, with the output beside them.

A block ```python is run. A block ```text right after it is what it prints; `...` stands for what
varies: within a line for any text, alone on a line for any lines. A block ```py is shown only.
In blocks ```sh, commands of `make` and `anabranch` must exist, with their options.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^(?P<indent>\s*)```(?P<language>[\w{}-]*)[^`]*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page; `line` is its first line of text."""

    language: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    language, lines, start, indent = "", [], 0, None
    for number, line in enumerate(page.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and indent is None:
            language, lines, start, indent = mark["language"], [], number + 1, mark["indent"]
        elif mark and not mark["language"]:
            yield Block(language, "\n".join(lines) + "\n", start)
            indent = None
        elif indent is not None:
            lines.append(line.removeprefix(indent))


def run_page(page: str, name: str, namespace: dict[str, Any]) -> list[str]:
    """Runs the Python of a page; gives a line for each output that differs from what it shows."""
    differences = []
    printed: str | None = None
    for block in blocks(page):
        if block.language == "python":
            printed = run_block(block, name, namespace)
        elif block.language == "text" and printed is not None:
            if not fits(block.text, printed):
                differences.append(
                    f"{name}:{block.line}: the page shows\n{block.text}but it prints\n{printed}"
                )
            printed = None
        else:
            printed = None
    return differences


def run_block(block: Block, name: str, namespace: dict[str, Any]) -> str:
    """What a block prints; in an error, lines are those of the page."""
    source = "\n" * (block.line - 1) + block.text
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, name, "exec"), namespace)  # noqa: S102 - the page is ours
    return printed.getvalue()


def fits(shown: str, printed: str) -> bool:
    """True if a page shows what is printed; spaces at the ends of lines do not count."""
    pattern = []
    for line in _lines(shown):
        if line.strip() == "...":
            pattern.append(r"(?:.*\n)*?")
        else:
            pattern.append(".*".join(map(re.escape, line.split("..."))) + r"\n")
    return re.fullmatch("".join(pattern), "\n".join([*_lines(printed), ""])) is not None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def command_lines(page: str) -> Iterator[tuple[int, list[str]]]:
    """The commands in blocks of shell, with their lines; comments and prompts are left out."""
    for block in blocks(page):
        if block.language not in {"sh", "bash", "console"}:
            continue
        whole = block.text.replace("\\\n", "  ")
        for number, line in enumerate(whole.splitlines(), block.line):
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words:
                yield number, words


def bad_command(words: list[str], helps: Mapping[str, str], root: Path) -> str | None:
    """What is wrong with a command of a page; None where nothing is, or where it is not ours."""
    program = Path(words[0]).name
    if program == "make":
        asked = subprocess.run(
            ["make", "-n", "-C", str(root), *words[1:]], capture_output=True, text=True, check=False
        )
        return None if asked.returncode == 0 else asked.stderr.strip()
    if program != "anabranch":
        return None
    name = max(
        (each for each in helps if f"{' '.join([program, *words[1:]])} ".startswith(f"{each} ")),
        key=len,
    )
    if name == program and len(words) > 1 and not words[1].startswith("-"):
        return f"anabranch has no command {words[1]!r}"
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", helps[name]))
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word not in known]
    missing = [w for w in words[1:] if w.startswith("examples/") and not (root / w).exists()]
    if unknown:
        return f"{name} has no option {', '.join(unknown)}"
    return f"{', '.join(missing)} does not exist" if missing else None
