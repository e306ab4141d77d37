"""Claims of the papers, tested: the paper's figure, ours, and a test that anyone can repeat."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.errors import AnabranchError

_TESTS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One figure of the paper and ours; the test reads `<= 1.5 * paper` or `> paper`, for ours.

    `why` explains a claim that does not hold; `note` names the choice or constant of ours on which
    its figures depend.
    """

    id: str
    what: str
    paper: float
    ours: float
    test: str
    why: str = ""
    note: str = ""

    @property
    def holds(self) -> bool:
        sign, *rest = self.test.split()
        factor = float(rest[0]) if len(rest) == 3 else 1.0
        return bool(_TESTS[sign](self.ours, factor * self.paper))


def check_ids(claims: Sequence[Claim]) -> None:
    """Refuses claims with a duplicate id: an id must find the same verdict in every run."""
    twice = sorted(
        {claim.id for claim in claims if sum(other.id == claim.id for other in claims) > 1}
    )
    if twice:
        raise AnabranchError(
            f"claims have one id twice: {', '.join(twice)}; valid: an id of the papers' list with "
            "a suffix of its own"
        )


def as_facts(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Claims with their verdicts, for JSON."""
    return [{**asdict(claim), "holds": claim.holds} for claim in claims]


def as_line(lab: str, claims: Sequence[Claim], settings: Mapping[str, Any], **more: Any) -> str:
    """The last line of an experiment's output."""
    return json.dumps({"lab": lab, "claims": as_facts(claims), "settings": dict(settings), **more})


def as_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows in columns of the width that they need, numbers to the right."""
    cells = [
        list(map(str, head)),
        *([f"{x:,.4g}" if isinstance(x, float) else str(x) for x in row] for row in rows),
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    numeric = [
        all(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows)
        for i in range(len(head))
    ]
    return "\n".join(
        "  ".join(
            c.rjust(w) if right else c.ljust(w)
            for c, w, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    )


def claims_table(claims: Sequence[Claim]) -> str:
    """All claims as a table; below it, why some do not hold."""
    table = as_table(
        ["claim", "what", "paper", "ours", "test", "holds"],
        [
            (c.id, c.what, float(c.paper), float(c.ours), c.test, "yes" if c.holds else "NO")
            for c in claims
        ],
    )
    reasons = [f"{c.id}, {c.what}: {c.why}" for c in claims if c.why and not c.holds]
    return "\n".join([table, *(["", *reasons] if reasons else [])])
