"""Elasticity: observe, evaluate, decide. Functions of values: the live controller and the lab call the same ones."""

from anabranch.elastic.controller import Memory, control
from anabranch.elastic.observation import (
    Change,
    ComponentSeen,
    Decision,
    Evaluation,
    Observation,
    Reroute,
    Resize,
    SourceSeen,
    Wanted,
)
from anabranch.elastic.policies.autoscale import AutoScale
from anabranch.elastic.policies.latency import Network, Stepwise
from anabranch.elastic.settings import Elastic, Guards, Policy

__all__ = [
    "AutoScale",
    "Change",
    "ComponentSeen",
    "Decision",
    "Elastic",
    "Evaluation",
    "Guards",
    "Memory",
    "Network",
    "Observation",
    "Policy",
    "Reroute",
    "Resize",
    "SourceSeen",
    "Stepwise",
    "Wanted",
    "control",
]
