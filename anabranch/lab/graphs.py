"""CBP's operator graphs: random ones (6.2, drawn as its Fig. 2 says) and the extended Linear Road (6.3).

What the paper leaves open: rows from the source go to all operators without another input; a selectivity is held within 0 and 2; a
slot takes `capacity` rows a minute; of the skewed stream's 10,000 keys (Zipf, exponent 1) a share `drift` changes places each minute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.plan.streams import Operator, Stream, Streams

_RATE = 600_000  # rows of a source a minute: a Poisson process of 10,000 a second
_STATE = 10_000
_KEYS = 10_000

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How rows fall on shards, minute by minute."""

    minutes: int = 60
    shards: int = 64
    skewed: bool = False
    drift: float = 0.02

    def shares(self, chance: np.random.Generator) -> Array:
        """The share of each shard in each minute."""
        if not self.skewed:
            return np.full((self.minutes, self.shards), 1 / self.shards)
        weights = 1 / np.arange(1, _KEYS + 1)
        shard_of = chance.integers(0, self.shards, _KEYS)
        rows = []
        for _ in range(self.minutes):
            rows.append(np.bincount(shard_of, weights, minlength=self.shards) / weights.sum())
            moved = chance.choice(_KEYS, int(self.drift * _KEYS), replace=False)
            shard_of[moved] = shard_of[chance.permutation(moved)]
        return np.array(rows)


def random_graph(seed: int, operators: int, degree: int, load: Load) -> tuple[Streams, float]:
    """A graph with `degree` streams for each operator, and the rows that its source sends."""
    chance = np.random.default_rng([seed, operators, degree])
    edges: set[tuple[int, int]] = set()
    while len(edges) < min(degree * operators, operators * (operators - 1) // 2):
        a, b = sorted(chance.choice(operators, 2, replace=False).tolist())
        edges.add((a, b))
    keys = [frozenset(f"a{k}" for k in chance.choice(4, 2, replace=False)) for _ in range(operators)]
    selectivity = np.clip(chance.normal(0.5, 1.0, operators), 0, 2)
    followers = {i: sorted(b for a, b in edges if a == i) for i in range(operators)}
    roots = sorted(set(range(operators)) - {b for _, b in edges})
    taken = np.zeros(operators)
    taken[roots] = _RATE / len(roots)
    rates = {}
    for i in range(operators):
        for j, part in zip(followers[i], chance.dirichlet(np.ones(len(followers[i]))) if followers[i] else (), strict=True):
            rates[i, j] = float(selectivity[i] * taken[i] * part)
            taken[j] += rates[i, j]
    states = chance.poisson(_STATE, operators)
    noise = np.random.default_rng([seed, operators, degree, 1 + load.skewed])
    shares = load.shares(noise)
    made = [
        Operator(name=f"o{i}", attributes=keys[i], state=float(states[i]), loads=noise.poisson(taken[i] * shares).astype(float))
        for i in range(operators)
    ]
    streams = [Stream(f"o{a}", f"o{b}", rate * load.minutes) for (a, b), rate in rates.items()]
    return Streams(tuple(made), tuple(streams)), float(_RATE * load.minutes)


def linear_road(seed: int, load: Load, roads: int = 30, joints: int = 10) -> Streams:
    """The extended Linear Road: six operators for each road of a random network; o6 follows vehicles on to the next roads.

    The paper's Fig. 6 is a drawing; keys of o1 to o4 are those of its Fig. 1, the rest and the selectivities are ours.
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
    inner = {(1, 2): 1.0, (1, 3): 1.0, (1, 5): 1.0, (1, 6): 0.2, (2, 4): 0.2, (3, 4): 0.05, (5, 4): 0.01}
    shares = load.shares(chance)
    operators, streams = [], []
    for road, (_, end) in enumerate(network):
        taken = {1: 1.0, **{o: sum(rate for (_, b), rate in inner.items() if b == o) for o in range(2, 7)}}
        following = [r for r, (start, _) in enumerate(network) if start == end]
        for o, rate in taken.items():
            operators.append(
                Operator(
                    name=f"r{road}.o{o}",
                    attributes=frozenset(keys[o].split()),
                    state=0.0 if o == 1 else float(chance.poisson(_STATE)),
                    loads=chance.poisson(_RATE / roads * rate * shares).astype(float),
                )
            )
        minute = _RATE / roads * load.minutes
        streams += [Stream(f"r{road}.o{a}", f"r{road}.o{b}", minute * rate) for (a, b), rate in inner.items()]
        streams += [Stream(f"r{road}.o6", f"r{r}.o6", minute * 0.2 / len(following)) for r in following]
    return Streams(tuple(operators), tuple(streams))
