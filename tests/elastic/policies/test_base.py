"""What the controller asks of a policy, and the defaults."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.elastic import Elastic, Evaluation, PolicyRequest, control
from anabranch.elastic.balance import spread
from anabranch.elastic.memory import Memory
from anabranch.elastic.policies.base import BasePolicy, UserPolicy, complete
from anabranch.elastic.policies.baselines import Static
from anabranch.elastic.settings import BALANCES, POLICIES
from tests.elastic.policies.evaluations import evaluation, loaded
from tests.elastic.recorded import RECORDED


class Mine:
    """The least that a user must write."""

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        return PolicyRequest(slots={each.name: most for each in seen.components}, reason="mine")


@dataclass(frozen=True)
class Counting(Mine):
    """A policy that learns how many steps there were."""

    steps: int = 0

    def learnt(self, seen: Evaluation) -> Counting:
        return Counting(self.steps + 1)


def test_a_policy_with_wanted_alone_has_all_defaults() -> None:
    policy, seen, each = complete(Mine()), evaluation(loaded()), loaded()
    assert policy.wanted(seen, None, 7).slots == {"a": 7}
    assert policy.learnt(seen) is policy
    assert policy.resized(each, 3) == spread(each.share, each.route, 3)
    assert [policy.balancing(setting) for setting in BALANCES] == list(BALANCES)
    assert policy.pause_s(seen, ()) == 0.0


def test_a_complete_policy_is_used_as_it_is() -> None:
    policy = Static()
    assert complete(policy) is policy
    assert all(isinstance(each, BasePolicy) for each in POLICIES.values())


def test_a_users_policy_that_learns_is_remembered_from_step_to_step() -> None:
    memory, decisions = Memory(), []
    for seen in RECORDED[:20]:
        memory, decision = control(memory, seen, Elastic(policy=Counting()))
        decisions.append(decision)
    asked = [each for each in decisions if not each.reason.startswith("warming up")]
    assert isinstance(memory.policy, UserPolicy)
    assert memory.policy.given == Counting(steps=len(asked))
    assert len(asked) == 20 - Elastic().guards.warm_up_steps


def test_a_policy_that_does_not_learn_is_not_remembered() -> None:
    memory = Memory()
    for seen in RECORDED[:20]:
        memory, _ = control(memory, seen, Elastic(policy=Mine()))
    assert memory.policy is None
