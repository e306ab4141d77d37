"""From the graph to a plan: which operators share a component, and which windows share panes.

Everything here is a function of values.
"""

from anabranch.plan.explain import explain
from anabranch.plan.make import make_plan
from anabranch.plan.model import Component, Plan
from anabranch.plan.operators.base import OperatorPlan
from anabranch.plan.panes import Closing, Panes, panes_of

__all__ = [
    "Closing",
    "Component",
    "OperatorPlan",
    "Panes",
    "Plan",
    "explain",
    "make_plan",
    "panes_of",
]
