"""Observers that change routes, slots and components all the time: results must stay the same.

Both ask for changes as soon as a step is committed; the run applies them before the next step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from anabranch.metrics import Progress
from anabranch.observer import Observer
from anabranch.plan.planners.registry import PLANNERS
from anabranch.plan.route import Route
from anabranch.spark.api.run import Run
from anabranch.spark.driver.changes import Changes


class Restless(Observer):
    """Asks for random changes, also for some that no controller would ask for.

    Such routes have slots without a shard, or all shards in one slot.
    """

    def __init__(self, run: Run, seed: int, *, most_slots: int = 4, plans: float = 0.1) -> None:
        self._run, self._stepper = run, run._stepper  # noqa: SLF001
        self._rng, self._most, self._plans = random.Random(seed), most_slots, plans
        self.offered: set[frozenset[str]] = set()  # the components of the plans that it asked for

    def step(self, progress: Progress) -> None:  # noqa: ARG002 - any step will do
        self.ask()

    def ask(self) -> None:
        """Asks for other routes, and now and then for another plan."""
        requests, names = self._stepper.requests, list(self._stepper.state.routes)
        if self._rng.random() < self._plans:
            self._run.replan(self._rng.choice(sorted(PLANNERS)))
            plan = requests.waiting.plan
            planned = [] if plan is None else [each.name for each in plan.components]
            self.offered.add(frozenset(map(str, planned)))
            names += planned
        shards = self._stepper.context.shards
        routes = {name: random_route(self._rng, shards, min(self._most, shards)) for name in names}
        requests.add(Changes(routes=routes))


class Acting(Observer):
    """Calls functions after given steps, like a person who asks at the right time.

    Steps that only rewrite state, for another plan, are not counted.
    """

    def __init__(self, run: Run, acts: Mapping[int, Sequence[Callable[[], None]]]) -> None:
        self._stepper, self._acts = run._stepper, dict(acts)  # noqa: SLF001

    def step(self, progress: Progress) -> None:  # noqa: ARG002 - the checkpoint knows more
        self.act()

    def act(self) -> None:
        """Calls what is due after the last committed step."""
        last = self._stepper.context.checkpoint.last
        for act in self._acts.pop(last.step - last.replans, ()) if last is not None else ():
            act()


def random_route(rng: random.Random, shards: int, most_slots: int) -> Route:
    """Puts each shard into a random slot."""
    slots = rng.randint(1, most_slots)
    return Route(tuple(rng.randrange(slots) for _ in range(shards)), slots, 0)


def disturb(run: Run, seed: int, *, most_slots: int = 4, plans: float = 0.1) -> Restless:
    """Changes routes, slots and components of a run from its next step on, while it runs."""
    restless = Restless(run, seed, most_slots=most_slots, plans=plans)
    run._stepper.observers.attach(restless)  # noqa: SLF001
    restless.ask()
    return restless


def act_after(run: Run, acts: Mapping[int, Sequence[Callable[[], None]]]) -> None:
    """Calls functions after the steps of a run with these numbers."""
    acting = Acting(run, acts)
    run._stepper.observers.attach(acting)  # noqa: SLF001
    acting.act()
