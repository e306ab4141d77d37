"""What CBP claims for Fig. 3 to 5 and Table 1, and why some of it does not hold here.

Each reason was tested by changing its cause.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.lab.cbp.linear_road import Latency
from anabranch.lab.claims import Claim

WHY = {
    "3b-baseline": "Each slot sends to all slots of the next operator. So what a placement saves "
    "depends on where slots are, not on which keys they hold, and our slots stay where they are. "
    "With every fifth slot placed elsewhere, as an adaptation of the skewed stream may do, it is "
    "3.3 % (every tenth: 1.5 %).",
    "t1b": "A row of the baseline meets the pauses of three operators, a row of a component only "
    "one. Agreement (1 s) is most of a pause. Where a pause is only the transfer of state (no "
    "agreement, 3,000 rows per second), the claim holds in the mean of two networks, 5,743 "
    "against 150 ms, and in one of the two. The paper's own row for the baseline cannot be right: "
    "with its median (153), 95th percentile (1017) and maximum (2109), no mean is above 640 ms, "
    "but it says 775.",
}
NOTES = {
    "t1a": "The pause (1 s, 100,000 rows of state per second) was chosen to fit the baseline's "
    "maximum in Table 1. With 0.5 s and 20,000 rows, tried before, greedy was 22 % above the "
    "baseline and MWSC 27 %.",
    "4-greedy-uniform": "In the mean over degrees. At degree 3 alone greedy moves about as much "
    "as the baseline: 0.47 against 0.54 % of all state per minute, in ten graphs. It counts what "
    "moves; where it does not (weight 0), it moves 0.97 %.",
}
STREAMS = ("uniform", "skewed")
FREQUENCIES = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Means over the repeats, by degree, stream, way of planning and 1/f."""

    degree: int
    stream: str
    way: str
    every: int
    # Percent of all rows that operators take, including those from the source (the paper's
    # 100 n_c / N_1).
    saved: float
    moved: float  # rows of state over the history
    components: float
    seconds: float


Figures = Mapping[tuple[int, str, str, int], Figure]


def claims_of(found: list[Figure]) -> list[Claim]:
    """Fig. 3 to 5. Directions are ratios; the paper's ratio is 1.

    If the base has moved no rows, it counts as one row.
    """
    by = {(f.degree, f.stream, f.way, f.every): f for f in found}
    degrees = sorted({f.degree for f in found})
    return [
        *_saved_claims(by, degrees),
        *_stream_claims(by, degrees),
        *_moved_claims(by, degrees),
        *_slower_claims(by, degrees),
    ]


def _saved_claims(by: Figures, degrees: list[int]) -> list[Claim]:
    """Fig. 3a: what plans save on the uniform stream."""
    claims = []
    for degree, way, paper in (
        (3, "greedy", 20.0),
        (3, "mwsc", 27.8),
        (10, "greedy", 40.0),
        (10, "mwsc", 60.0),
    ):
        if degree in degrees:
            ours = by[degree, "uniform", way, 1].saved
            what = f"communication saved by {way}, in %, degree {degree}"
            claims.append(
                Claim(
                    id=f"cbp-3a-{way}-{degree}",
                    what=what,
                    paper=paper,
                    ours=ours,
                    test=">= 0.5 * paper",
                )
            )
    most = max(by[d, stream, "baseline", 1].saved for d in degrees for stream in STREAMS)
    claims.append(
        Claim(
            id="cbp-3a-baseline",
            what="communication saved by the baseline, in %, at most",
            paper=20,
            ours=most,
            test="<= paper",
        )
    )
    return claims


def _stream_claims(by: Figures, degrees: list[int]) -> list[Claim]:
    """Fig. 3b: communication on the skewed stream, over that on the uniform one."""

    def ratio(way: str) -> float:
        left = [
            [100 - by[d, stream, way, 1].saved for d in degrees] for stream in ("skewed", "uniform")
        ]
        return statistics.fmean(skewed / uniform for skewed, uniform in zip(*left, strict=True))

    same = [
        Claim(
            id=f"cbp-3b-{way}",
            what=f"communication of {way}, skewed / uniform: the same",
            paper=1,
            ours=max(ratio(way), 1 / ratio(way)),
            test="<= 1.02 * paper",
        )
        for way in ("greedy", "mwsc")
    ]
    more = 100 * (ratio("baseline") - 1)
    what = "communication of the baseline, skewed above uniform, in %"
    return [
        *same,
        Claim(
            id="cbp-3b-baseline",
            what=what,
            paper=3,
            ours=more,
            test=">= 0.5 * paper",
            why=WHY["3b-baseline"],
        ),
    ]


def _moved_claims(by: Figures, degrees: list[int]) -> list[Claim]:
    """Fig. 4: state that moves, on average over degrees."""

    def moved(way: str, stream: str) -> float:
        return max(1.0, statistics.fmean(by[d, stream, way, 1].moved for d in degrees))

    claims = [
        Claim(
            id=f"cbp-4-{way}-{stream}",
            what=f"state moved, {way} / baseline, {stream}",
            paper=1,
            ours=moved(way, stream) / moved("baseline", stream),
            test="> paper",
            note=NOTES.get(f"4-{way}-{stream}", ""),
        )
        for stream in STREAMS
        for way in ("greedy", "mwsc")
    ]
    for way in ("greedy", "mwsc", "baseline"):
        ratio = moved(way, "skewed") / moved(way, "uniform")
        claims.append(
            Claim(
                id=f"cbp-4-skew-{way}",
                what=f"state moved, skewed / uniform, {way}",
                paper=1,
                ours=ratio,
                test="> paper",
            )
        )
    return claims


def _slower_claims(by: Figures, degrees: list[int]) -> list[Claim]:
    """Fig. 5: state that moves when adaptations are less frequent."""
    claims = []
    for stream in STREAMS:
        moved = [by[degrees[-1], stream, "greedy", every].moved for every in FREQUENCIES]
        falls = max(b / max(a, 1) for a, b in itertools.pairwise(moved))
        steps = zip(itertools.pairwise(moved), itertools.pairwise(FREQUENCIES), strict=True)
        slopes = [(a - b) / (g - f) for (a, b), (f, g) in steps]
        gentler = max(b / max(a, 1) for a, b in itertools.pairwise(slopes))
        for name, what, ours in (
            ("falls", "cost at one 1/f / at the 1/f before", falls),
            ("gentler", "slope / the slope before", gentler),
        ):
            claims.append(
                Claim(
                    id=f"cbp-5-{name}-{stream}",
                    what=f"largest {what}, {stream}",
                    paper=1,
                    ours=ours,
                    test="< paper",
                )
            )
    return claims


def road_claims(found: dict[tuple[str, int], Latency]) -> list[Claim]:
    """Table 1 at 1/f = 1."""
    base = found["baseline", 1]
    claims = []
    for way, mean, p95 in (("greedy", 677, 1501), ("mwsc", 583, 1532)):
        ours = found[way, 1]
        saved = 100 * (1 - ours.mean / base.mean)
        paper = 100 * (1 - mean / 775)
        claims += [
            Claim(
                id=f"cbp-t1a-{way}",
                what=f"mean latency of {way}, in % below the baseline",
                paper=paper,
                ours=saved,
                test=">= 0.5 * paper",
                note=NOTES["t1a"],
            ),
            Claim(
                id=f"cbp-t1b-{way}",
                what=f"95th percentile, {way} / baseline (paper: {p95 / 1017:.2f}, to its own "
                "disadvantage)",
                paper=1,
                ours=ours.p95 / base.p95,
                test="> paper",
                why=WHY["t1b"],
            ),
        ]
    return claims
