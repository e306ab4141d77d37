"""CBP's operator graphs: random ones (6.2, drawn as its Fig. 2 says) and the extended Linear Road
(6.3).

What the paper leaves open, and why it is drawn as it is:
- Each operator sends its output to every operator that follows it, as Storm does and as o1 does in
  the paper's Fig. 1; the source to all that have no other input. If a row went to one of the
  followers only, traffic between operators would not grow with the degree, and the source's rows,
  which no plan saves, would be more than half of all: 22, 21, 21 % saved at degrees 3, 5, 10.
- An operator "randomly forwards the received data": a selectivity is a probability, drawn again
  where it is not within 0 and 1.
- The process is looked at with tau = 1 s and histograms hold rates: a minute's rate is a draw of
  the rows of one second, so that it varies by 1 %. Sums over the minute would vary by 0.13 %, and
  the uniform stream would hardly ever ask for another slot, which the paper says it does. Operators
  downstream take part in the source's ups and downs: they get a part of the very same rows.
- Of the skewed stream's 10,000 keys (Zipf, exponent 1) a share `drift` changes places each minute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.plan.planners.problem import PlannerOperator, StreamEdge, StreamGraph

_RATE = 10_000  # rows of the source a second: a Poisson process
_STATE = 10_000
_KEYS = 10_000
# Rows of vehicles that o6 follows on to each of the next roads, for each row of a road's source.
_ON = 0.2

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How rows fall on shards, minute by minute."""

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
    """A graph twice: the minutes that a plan is made from, and as many after them, in which it is
    judged.
    """

    seen: StreamGraph
    run: StreamGraph
    sent: float  # rows of the source in the latter


def random_graph(seed: int, operators: int, degree: int, load: Load) -> Drawn:
    """A graph with `degree` streams for each operator.

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
    """What all operators take together in the mean minute."""
    return sum(
        float(each.loads.sum(axis=1).mean()) for each in streams.operators if each.loads is not None
    )


def linear_road(seed: int, load: Load, roads: int = 30, joints: int = 10) -> StreamGraph:
    """The extended Linear Road: six operators for each road of a random network.

    O6 follows vehicles on to the next roads.

    The paper's Fig. 6 is a drawing; keys of o1 to o4 are those of its Fig. 1, the rest and the
    selectivities are ours.
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
