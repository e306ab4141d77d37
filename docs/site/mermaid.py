"""Mermaid without Mermaid: the flowcharts and sequences of our pages, read into values.

Pages have Mermaid blocks because code hosts show them; the site draws them itself, as Mermaid's
own script is some megabytes from elsewhere. What is not understood is refused, by line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NODE = re.compile(
    r'(?P<id>\w+)(?:\[/"?(?P<slanted>[^"/]*)"?/\]|\["?(?P<box>[^"\]]*)"?\]'
    r'|\{\{"?(?P<hexagon>[^"}]*)"?\}\}|\("?(?P<round>[^")]*)"?\))?'
)
_LINK = re.compile(
    r'(?:(?P<plain>-->|---)|(?P<dotted>-\.->)|--\s*"?(?P<label>[^"]+?)"?\s*-->'
    r'|==\s*"?(?P<thick>[^"=]+?)"?\s*==>|-\.\s*"?(?P<dotted_label>[^"]+?)"?\s*\.->)'
    r'(?:\|"?(?P<after>[^"|]*)"?\|)?'
)
_GROUP = re.compile(r'subgraph\s+(?P<id>\w+)(?:\["?(?P<title>[^"\]]*)"?\])?$')
_MESSAGE = re.compile(r"(?P<of>\w+)(?P<dotted>--|-)>>(?P<to>\w+)\s*:\s*(?P<text>.*)$")


class MermaidError(ValueError):
    """A line of a block that the site cannot draw."""


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    text: str
    shape: str = "box"


@dataclass(frozen=True, slots=True)
class Link:
    of: str
    to: str
    text: str = ""
    dotted: bool = False
    arrow: bool = True


@dataclass(slots=True)
class Group:
    """Nodes and groups drawn in one frame; the whole chart is one without a title."""

    id: str = ""
    title: str = ""
    down: bool = True
    nodes: dict[str, Node] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def all_nodes(self) -> dict[str, Node]:
        found = dict(self.nodes)
        for group in self.groups:
            found |= group.all_nodes()
        return found


@dataclass(frozen=True, slots=True)
class Chart:
    whole: Group
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Message:
    of: str
    to: str
    text: str
    dotted: bool


@dataclass(frozen=True, slots=True)
class Note:
    over: str
    text: str


@dataclass(frozen=True, slots=True)
class Optional:
    """Messages that come only in the case that the text names."""

    text: str
    inner: tuple[Entry, ...]


Entry = Message | Note | Optional


@dataclass(frozen=True, slots=True)
class Sequence:
    people: dict[str, str]
    entries: tuple[Entry, ...]


def read(source: str) -> Chart | Sequence:
    """A Mermaid block as a value."""
    lines = [line.strip() for line in source.splitlines()]
    lines = [line for line in lines if line and not line.startswith("%%")]
    if not lines:
        raise MermaidError("a Mermaid block is empty")
    kind, *rest = lines[0].split()
    if kind in {"graph", "flowchart"}:
        return _chart(lines[1:], down=rest[0] in {"TD", "TB"})
    if kind == "sequenceDiagram":
        return _sequence(lines[1:])
    raise MermaidError(f"Mermaid {lines[0]!r} is not drawn here; valid: flowchart, sequenceDiagram")


def _chart(lines: list[str], *, down: bool) -> Chart:
    whole = Group(down=down)
    open_groups = [whole]
    links: list[Link] = []
    for line in lines:
        group = open_groups[-1]
        if found := _GROUP.match(line):
            inner = Group(found["id"], _lines(found["title"] or found["id"]), down)
            group.groups.append(inner)
            open_groups.append(inner)
        elif line == "end":
            open_groups.pop()
        elif line.startswith("direction "):
            group.down = line.split()[1] in {"TD", "TB"}
        else:
            links += _statement(line, group, whole)
    return Chart(whole, tuple(links))


def _statement(line: str, group: Group, whole: Group) -> list[Link]:
    """A chain of nodes: `a["text"] --> b -- "label" --> c`."""
    links: list[Link] = []
    at, last, link = 0, None, None
    while at < len(line):
        found = _NODE.match(line, at)
        if found is None:
            raise MermaidError(f"no node at {line[at:]!r} of Mermaid's {line!r}")
        node = _node(found, group, whole)
        if link is not None and last is not None:
            links.append(_link(link, last, node))
        at, last = found.end(), node
        at += len(line[at:]) - len(line[at:].lstrip())
        if at == len(line):
            break
        link = _LINK.match(line, at)
        if link is None:
            raise MermaidError(f"no link at {line[at:]!r} of Mermaid's {line!r}")
        at = link.end()
        at += len(line[at:]) - len(line[at:].lstrip())
    return links


def _node(found: re.Match[str], group: Group, whole: Group) -> str:
    """The id of a node. Where it is named first, or with a text, is where it belongs."""
    name = found["id"]
    shape, text = next(
        ((s, found[s]) for s in ("box", "hexagon", "round", "slanted") if found[s] is not None),
        ("", None),
    )
    if text is not None or name not in whole.all_nodes():
        group.nodes[name] = Node(name, _lines(name if text is None else text), shape or "box")
    return name


def _link(found: re.Match[str], of: str, to: str) -> Link:
    text = found["label"] or found["thick"] or found["dotted_label"] or found["after"] or ""
    dotted = bool(found["dotted"] or found["dotted_label"])
    return Link(of, to, _lines(text), dotted, arrow=found["plain"] != "---")


def _sequence(lines: list[str]) -> Sequence:
    people: dict[str, str] = {}
    entries: list[list[Entry]] = [[]]
    texts: list[str] = []
    for line in lines:
        if line.startswith("participant "):
            name, _, text = line.removeprefix("participant ").partition(" as ")
            people[name.strip()] = _lines(text or name)
        elif line.startswith("Note over "):
            over, _, text = line.removeprefix("Note over ").partition(":")
            entries[-1].append(Note(over.strip(), _lines(text.strip())))
        elif line.startswith("opt "):
            texts.append(line.removeprefix("opt "))
            entries.append([])
        elif line == "end" and texts:
            inner = tuple(entries.pop())
            entries[-1].append(Optional(texts.pop(), inner))
        elif found := _MESSAGE.match(line):
            dotted = found["dotted"] == "--"
            entries[-1].append(Message(found["of"], found["to"], _lines(found["text"]), dotted))
        else:
            raise MermaidError(f"Mermaid's {line!r} is not understood")
    return Sequence(people, tuple(entries[0]))


def _lines(text: str) -> str:
    return re.sub(r"<br\s*/?>", "\n", text).strip()
