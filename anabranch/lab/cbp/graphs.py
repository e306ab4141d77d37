"""CBP's operator graphs: random ones (6.2, drawn by its Fig. 2) and the extended Linear Road (6.3).

What the paper leaves open, and how it is drawn here:

- Each operator sends its output to every operator that follows it, as Storm does, and as o1 does in
  the paper's Fig. 1. The source sends to all that have no other input. If a row went to only one of
  the followers, traffic between operators would not grow with the degree. The source's rows, which
  no plan saves, would be more than half of all: 22, 21, 21 % saved at degrees 3, 5, 10.
- An operator "randomly forwards the received data": a selectivity is a probability, drawn again
  while it is not between 0 and 1.
- The process is observed with tau = 1 s and histograms hold rates. So a minute's rate is a draw of
  the rows of one second, and varies by 1 %. Sums over the minute would vary by 0.13 %, and the
  uniform stream would hardly ever need another slot; the paper says that it does. The rates of
  operators downstream vary with the source, since they get a part of the same rows.
- A share `drift` of the skewed stream's 10,000 keys (Zipf, exponent 1) changes places each minute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.plan.planners.problem import PlannerOperator, StreamEdge, StreamGraph

_RATE = 10_000  # rows of the source per second: a Poisson process
_STATE = 10_000
_KEYS = 10_000
# For each row of a road's source: rows that o6 sends on to each of the next roads.
_ON = 0.2

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How rows are spread over shards, minute by minute."""

    minutes: int = 30
    shards: int = 256
    skewed: bool = False
    drift: float = 0.02

    def shares(self, chance: np.random.Generator, minutes: int) -> Array:
        """The share of each shard in each minute."""
        if not self.skewed:
            return np.full((minutes, self.shards), 1 / self.shards)
        weights = 1 / np.arange(1, _KEYS + 1)
        shard_of = chance.integers(0, self.shards, _KEYS)
        rows = []
        for _ in range(minutes):
            rows.append(np.bincount(shard_of, weights, minlength=self.shards) / weights.sum())
            moved = chance.choice(_KEYS, int(self.drift * _KEYS), replace=False)
            shard_of[moved] = shard_of[chance.permutation(moved)]
        return np.array(rows)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A graph twice: the minutes that a plan is made from, and as many later ones to judge it."""

    seen: StreamGraph
    run: StreamGraph
    sent: float  # rows of the source in the later minutes


def random_graph(seed: int, operators: int, degree: int, load: Load) -> Drawn:
    """A graph with `degree` streams per operator.

    One seed gives one graph, and the same rates in both kinds of stream.
    """
    chance = np.random.default_rng([seed, operators, degree])
    edges: set[tuple[int, int]] = set()
    while len(edges) < min(degree * operators, operators * (operators - 1) // 2):
        a, b = sorted(chance.choice(operators, 2, replace=False).tolist())
        edges.add((a, b))
    keys = [
        frozenset(f"a{k}" for k in chance.choice(4, 2, replace=False)) for _ in range(operators)
    ]
    selectivity = _probabilities(chance, operators)
    states = chance.poisson(_STATE, operators)
    source = chance.poisson(_RATE, 2 * load.minutes)
    taken: list[Counts] = []
    sent: list[Counts] = []
    for j in range(operators):
        into = [sent[a] for a, b in edges if b == j]
        taken.append(np.sum(into, axis=0) if into else source)
        sent.append(chance.binomial(taken[j], selectivity[j]))
    noise = np.random.default_rng([seed, operators, degree, 1 + load.skewed])
    shares = load.shares(noise, 2 * load.minutes)
    loads: list[Array] = [
        60.0 * noise.multinomial(taken[j], shares).astype(np.float64) for j in range(operators)
    ]

    def within(minutes: slice) -> StreamGraph:
        return StreamGraph(
            tuple(
                PlannerOperator(
                    name=f"o{j}",
                    attributes=keys[j],
                    state=float(states[j]),
                    loads=loads[j][minutes],
                )
                for j in range(operators)
            ),
            tuple(
                StreamEdge(f"o{a}", f"o{b}", 60.0 * float(sent[a][minutes].sum()))
                for a, b in sorted(edges)
            ),
        )

    roots = operators - len({b for _, b in edges})
    later = slice(load.minutes, None)
    return Drawn(
        within(slice(load.minutes)), within(later), 60.0 * float(source[later].sum()) * roots
    )


def _probabilities(chance: np.random.Generator, count: int) -> Array:
    """Selectivities: normal, mean 0.5 and deviation 1, drawn again until they are probabilities."""
    found = chance.normal(0.5, 1.0, count)
    while (out := (found < 0) | (found > 1)).any():
        found[out] = chance.normal(0.5, 1.0, int(out.sum()))
    return found


def rows_per_minute(streams: StreamGraph) -> float:
    """The rows that all operators together take per minute, on average."""
    return sum(
        float(each.loads.sum(axis=1).mean()) for each in streams.operators if each.loads is not None
    )


def linear_road(seed: int, load: Load, roads: int = 30, joints: int = 10) -> StreamGraph:
    """The extended Linear Road: six operators for each road of a random network.

    o6 follows vehicles to the next roads. The paper's Fig. 6 is a drawing: the keys of o1 to o4 are
    those of its Fig. 1; the other keys and the selectivities are ours.
    """
    chance = np.random.default_rng([seed, roads, joints])
    pairs = [(a, b) for a in range(joints) for b in range(a + 1, joints)]
    network = [pairs[i] for i in sorted(chance.choice(len(pairs), roads, replace=False))]
    keys = {
        1: "ts vid spd dir seg pos",
        2: "vid dir seg",
        3: "dir seg",
        4: "dir seg",
        5: "dir seg pos",
        6: "vid",
    }
    inner = {
        (1, 2): 1.0,
        (1, 3): 1.0,
        (1, 5): 1.0,
        (1, 6): 0.2,
        (2, 4): 0.2,
        (3, 4): 0.05,
        (5, 4): 0.01,
    }
    shares = load.shares(chance, load.minutes)
    minute = 60 * _RATE / roads
    operators, streams = [], []
    for road, (start, end) in enumerate(network):
        before = sum(other == start for _, other in network)
        taken = {
            1: 1.0,
            **{o: sum(rate for (_, b), rate in inner.items() if b == o) for o in range(2, 7)},
        }
        taken[6] += before * _ON
        for o, rate in taken.items():
            operators.append(
                PlannerOperator(
                    name=f"r{road}.o{o}",
                    attributes=frozenset(keys[o].split()),
                    state=0.0 if o == 1 else float(chance.poisson(_STATE)),
                    loads=chance.poisson(minute * rate * shares).astype(float),
                )
            )
        whole = minute * load.minutes
        streams += [
            StreamEdge(f"r{road}.o{a}", f"r{road}.o{b}", whole * rate)
            for (a, b), rate in inner.items()
        ]
        streams += [
            StreamEdge(f"r{road}.o6", f"r{r}.o6", whole * _ON)
            for r, (first, _) in enumerate(network)
            if first == end
        ]
    return StreamGraph(tuple(operators), tuple(streams))
