"""How windows are formed from panes and from each other."""

from anabranch.plan.consolidation.families import (
    Consolidation,
    Family,
    Tile,
    keys_from,
    plan_consolidation,
)
from anabranch.plan.consolidation.nesting import PANE, Nested, Piece

__all__ = [
    "PANE",
    "Consolidation",
    "Family",
    "Nested",
    "Piece",
    "Tile",
    "keys_from",
    "plan_consolidation",
]
