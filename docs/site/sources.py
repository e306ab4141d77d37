"""Pages of the reference as Markdown, made from the code that they describe."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import tokenize
from collections.abc import Iterator
from importlib import import_module
from io import StringIO
from textwrap import dedent
from typing import Any

import typer

# Heading -> where its names are defined. The first that fits counts; "" fits everything.
SECTIONS = {
    "Topology, streams and runs": ("anabranch.spark.api", "anabranch.spark.session"),
    "Windows": ("anabranch.topology.windows", "anabranch.topology.calendar"),
    "Aggregates": ("anabranch.aggregates",),
    "State per key": ("anabranch.runtime.process", "anabranch.topology.process"),
    "Sinks": ("anabranch.spark.sinks",),
    "Elasticity": ("anabranch.elastic", "anabranch.topology.apply"),
    "What a run reports": ("anabranch.metrics", "anabranch.observer"),
    "Workloads": ("anabranch.workloads", "anabranch.spark.workload"),
    "Errors": ("anabranch.errors",),
    "More": ("",),
}
# Members that are for the package itself and not for users; with none named, all are.
INNER_MEMBERS: dict[str, tuple[str, ...]] = {
    "Aggregate": (),
    "Run": ("begin",),
    "Session": (),
    "SlotContext": ("gone",),
    "SlotState": ("into",),
    "Stream": ("app", "own_names"),
    "Topology": ("joined", "add", "empty", "check_results", "add_sink", "name_for"),
    "Window": (),
}
WIDTH = 100


def api_page(module: str) -> str:
    """The public names of a module, each with its docstring; of `anabranch` under headings."""
    home = import_module(module)
    names: dict[str, list[str]] = {heading: [] for heading in SECTIONS}
    for name in sorted(set(home.__all__) - _elsewhere(module), key=str.lower):
        names[_section_of(getattr(home, name))].append(name)
    parts = []
    for heading, listed in names.items():
        if listed and module == "anabranch":
            parts.append(f"## {heading}")
        parts += [_autodoc(module, name, getattr(home, name)) for name in listed]
    return "\n\n".join(parts)


def _elsewhere(module: str) -> set[str]:
    """Names that another page has, with their own module."""
    if module != "anabranch":
        return set()
    home = import_module(module)
    others = map(import_module, ("anabranch.testing", "anabranch.workloads"))
    return {
        name
        for other in others
        for name in set(other.__all__) & set(home.__all__)
        if getattr(other, name) is getattr(home, name)
    }


def _section_of(value: Any) -> str:
    home = getattr(value, "__module__", "")
    return next(heading for heading, homes in SECTIONS.items() if home.startswith(homes))


def _autodoc(module: str, name: str, value: Any) -> str:
    options = ["   :undoc-members:"]
    if isinstance(value, type) and issubclass(value, BaseException):
        kind, options = "exception", ["   :no-members:"]
    elif isinstance(value, type):
        kind = "class"
        if name in INNER_MEMBERS:
            inner = INNER_MEMBERS[name]
            hidden = [*options, f"   :exclude-members: {', '.join(inner)}"]
            options = hidden if inner else ["   :no-members:"]
    else:
        kind, options = ("function" if callable(value) else "data"), []
    return "\n".join(["```{eval-rst}", f".. auto{kind}:: {module}.{name}", *options, "", "```"])


def commands_page() -> str:
    """Every command with the text that its --help prints."""
    from anabranch.cli import app

    return "\n\n".join(
        f"## `{name}`\n\n```text\n{text}\n```" for name, text in commands("anabranch", app)
    )


def commands(name: str, app: typer.Typer) -> Iterator[tuple[str, str]]:
    """Each command of an application, groups before what is in them, and its help."""
    yield from _commands(name, typer.main.get_command(app), None)


def _commands(name: str, command: Any, parent: Any) -> Iterator[tuple[str, str]]:
    own = name if parent is None else name.rpartition(" ")[2]
    context = typer.Context(
        command, info_name=own, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield name, command.get_help(context).strip()
    for each in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _commands(f"{name} {each}", command.get_command(context, each), context)


def settings_page(path: str) -> str:
    """The fields of a class of settings, with default and meaning, as a table."""
    module, _, name = path.rpartition(".")
    lines = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for field, default, text in settings(getattr(import_module(module), name)):
        lines.append(f"| `{field}` | {f'`{default}`' if default else ''} | {text} |")
    return "\n".join(lines)


def settings(cls: Any) -> Iterator[tuple[str, str, str]]:
    """Name, default and the comment beside or above each field of a class."""
    source = dedent(inspect.getsource(cls))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    code = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and not isinstance(node, ast.ClassDef)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    defaults = {each.name: each for each in dataclasses.fields(cls)}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        last = node.end_lineno or node.lineno
        texts = [comments[line] for line in range(node.lineno, last + 1) if line in comments]
        above = node.lineno - 1
        while not texts[1:] and above in comments and above not in code:
            texts.insert(0, comments[above])
            above -= 1
        yield (
            node.target.id,
            _default(defaults[node.target.id]),
            " ".join(texts).replace("|", "\\|"),
        )


def _default(field: dataclasses.Field[Any]) -> str:
    """The default of a field; one that makes its own has none to show."""
    return "" if field.default is dataclasses.MISSING else repr(field.default)
