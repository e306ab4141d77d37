"""Where the boxes of a graph stand: in layers along its arrows, near what they are linked to.

Layers by the longest path, order by barycentres (Sugiyama et al. 1981), places by isotonic
regression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SWEEPS = 12
_DUMMY = 14.0  # room for a line that passes a layer


@dataclass(frozen=True, slots=True)
class Placed:
    """Centres of all boxes and the points that links pass: (along, across) the layers."""

    centres: Mapping[str, tuple[float, float]]
    passes: Mapping[tuple[str, str], list[tuple[float, float]]]
    back: frozenset[tuple[str, str]]
    along: float
    across: float


@dataclass(slots=True)
class _Layered:
    layers: list[list[str]] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)  # between neighbouring layers
    chains: dict[tuple[str, str], list[str]] = field(default_factory=dict)


def place(
    sizes: Mapping[str, tuple[float, float]],
    rooms: Mapping[tuple[str, str], float],
    *,
    gap_across: float,
) -> Placed:
    """Boxes by name with (length along, width across); links between them with the room they need
    between two layers.
    """
    links = [(a, b) for a, b in rooms if a != b]
    back = _back(list(sizes), links)
    ahead = [link for link in links if link not in back]
    layered = _layered(_ranks(list(sizes), ahead), ahead)
    _order(layered)
    width = {name: _DUMMY for layer in layered.layers for name in layer}
    width |= {name: across for name, (_, across) in sizes.items()}
    centre = _across(layered, width, gap_across)
    along, at, gap = {}, 0.0, 0.0
    for layer in layered.layers:
        at += gap
        thick = max(sizes[name][0] if name in sizes else 0.0 for name in layer)
        along |= dict.fromkeys(layer, at + thick / 2)
        at += thick
        gap = max((rooms[link] for link in ahead if link[0] in layer), default=0.0)
    low = min(centre[name] - width[name] / 2 for name in centre)
    high = max(centre[name] + width[name] / 2 for name in centre)
    points = {name: (along[name], centre[name] - low) for name in centre}
    passes = {link: [points[each] for each in chain] for link, chain in layered.chains.items()}
    centres = {name: points[name] for name in sizes}
    return Placed(centres, passes, frozenset(back), at, high - low)


def _back(names: Sequence[str], links: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Links that close a circle, seen from the boxes in their order."""
    found: set[tuple[str, str]] = set()
    state: dict[str, int] = {}

    def visit(name: str) -> None:
        state[name] = 1
        for link in links:
            if link[0] == name:
                if state.get(link[1]) == 1:
                    found.add(link)
                elif link[1] not in state:
                    visit(link[1])
        state[name] = 2

    for name in names:
        if name not in state:
            visit(name)
    return found


def _ranks(names: Sequence[str], links: Sequence[tuple[str, str]]) -> dict[str, int]:
    ranks = dict.fromkeys(names, 0)
    for _ in names:
        for a, b in links:
            ranks[b] = max(ranks[b], ranks[a] + 1)
    # What nothing leads to stands just before what it leads to.
    targets = {b for _, b in links}
    for name in names:
        after = [ranks[b] for a, b in links if a == name]
        if name not in targets and after:
            ranks[name] = min(after) - 1
    return ranks


def _layered(ranks: Mapping[str, int], links: Sequence[tuple[str, str]]) -> _Layered:
    found = _Layered([[] for _ in range(max(ranks.values()) + 1)])
    for name, rank in ranks.items():
        found.layers[rank].append(name)
    for a, b in links:
        chain = [f"{a} {b} {rank}" for rank in range(ranks[a] + 1, ranks[b])]
        for rank, name in zip(range(ranks[a] + 1, ranks[b]), chain, strict=True):
            found.layers[rank].append(name)
        found.chains[a, b] = chain
        found.edges += zip([a, *chain], [*chain, b], strict=True)
    found.layers = [layer for layer in found.layers if layer]
    return found


def _neighbours(layered: _Layered) -> dict[str, tuple[list[str], list[str]]]:
    found: dict[str, tuple[list[str], list[str]]] = {
        name: ([], []) for layer in layered.layers for name in layer
    }
    for a, b in layered.edges:
        found[b][0].append(a)
        found[a][1].append(b)
    return found


def _order(layered: _Layered) -> None:
    """Sorts each layer by the mean place of what it is linked to, down and up again."""
    beside = _neighbours(layered)
    best, fewest = [list(layer) for layer in layered.layers], _crossings(layered)
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for layer in layered.layers[:: -1 if side else 1]:
            place = {n: i for each in layered.layers for i, n in enumerate(each)}
            means = {
                name: sum(place[n] for n in beside[name][side]) / len(beside[name][side])
                if beside[name][side]
                else place[name]
                for name in layer
            }
            layer.sort(key=means.__getitem__)
        if (crossings := _crossings(layered)) < fewest:
            best, fewest = [list(layer) for layer in layered.layers], crossings
    layered.layers = best


def _crossings(layered: _Layered) -> int:
    place = {n: (r, i) for r, each in enumerate(layered.layers) for i, n in enumerate(each)}
    edges = [(*place[a], place[b][1]) for a, b in layered.edges]
    return sum(
        (b1 - b2) * (a1 - a2) < 0
        for i, (r1, a1, b1) in enumerate(edges)
        for r2, a2, b2 in edges[:i]
        if r1 == r2
    )


def _across(layered: _Layered, width: Mapping[str, float], gap: float) -> dict[str, float]:
    """Each box as near to its neighbours as the order and the gaps allow."""
    beside = _neighbours(layered)
    centre: dict[str, float] = {}
    for layer in layered.layers:
        at = 0.0
        for name in layer:
            centre[name] = at + width[name] / 2
            at += width[name] + gap
        for name in layer:
            centre[name] -= (at - gap) / 2
    for sweep in range(2 * _SWEEPS):
        for layer in layered.layers[:: -1 if sweep % 2 else 1]:
            wishes = []
            for name in layer:
                near = [centre[n] for side in beside[name] for n in side]
                wishes.append(sum(near) / len(near) if near else centre[name])
            centre |= zip(layer, _spaced(wishes, [width[n] for n in layer], gap), strict=True)
    return centre


def _spaced(wishes: Sequence[float], widths: Sequence[float], gap: float) -> list[float]:
    """The places nearest to the wishes, in order and with the gap between boxes."""
    offsets, at = [], 0.0
    for i, width in enumerate(widths):
        at += (widths[i - 1] + width) / 2 + gap if i else 0.0
        offsets.append(at)
    blocks: list[list[float]] = []  # sum, count
    for wish, offset in zip(wishes, offsets, strict=True):
        blocks.append([wish - offset, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    level = [total / count for total, count in blocks for _ in range(int(count))]
    return [base + offset for base, offset in zip(level, offsets, strict=True)]
