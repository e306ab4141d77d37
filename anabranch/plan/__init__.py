"""From the graph to a plan: which operators share a component, which panes their windows share. Functions of values."""

from anabranch.plan.explain import explain
from anabranch.plan.make import Component, Plan, Slotted, make_plan
from anabranch.plan.panes import Closing, Panes, panes_of

__all__ = ["Closing", "Component", "Panes", "Plan", "Slotted", "explain", "make_plan", "panes_of"]
