"""Elasticity: observe, evaluate, decide.

Functions of values: the live controller and the lab call the same ones.
"""

from anabranch.elastic.controller import Memory, control
from anabranch.elastic.observation import (
    Change,
    ComponentObservation,
    Decision,
    Evaluation,
    Observation,
    PolicyRequest,
    Reroute,
    Resize,
    SourceObservation,
)
from anabranch.elastic.policies.autoscale import AutoScale
from anabranch.elastic.policies.base import Policy
from anabranch.elastic.policies.latency import Network, Stepwise
from anabranch.elastic.settings import Elastic, Guards

__all__ = [
    "AutoScale",
    "Change",
    "ComponentObservation",
    "Decision",
    "Elastic",
    "Evaluation",
    "Guards",
    "Memory",
    "Network",
    "Observation",
    "Policy",
    "PolicyRequest",
    "Reroute",
    "Resize",
    "SourceObservation",
    "Stepwise",
    "control",
]
