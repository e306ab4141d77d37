"""Permanent change, to show that it changes no results: other routes, slots and components.

Both observers ask for changes as soon as a step is committed; the run makes them before the next.
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
    """Asks for what no controller would, by a seed.

    Slots without a shard and shards all in one slot are among what it asks for.
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
    """Does something after some steps: a person who asks at the right time.

    Steps that only wrote state again, for another plan, are not counted.
    """

    def __init__(self, run: Run, acts: Mapping[int, Sequence[Callable[[], None]]]) -> None:
        self._stepper, self._acts = run._stepper, dict(acts)  # noqa: SLF001

    def step(self, progress: Progress) -> None:  # noqa: ARG002 - the checkpoint knows more
        self.act()

    def act(self) -> None:
        """Does what is due after the last step that is committed."""
        last = self._stepper.context.checkpoint.last
        for act in self._acts.pop(last.step - last.replans, ()) if last is not None else ():
            act()


def random_route(rng: random.Random, shards: int, most_slots: int) -> Route:
    """Any shard in any of some slots."""
    slots = rng.randint(1, most_slots)
    return Route(tuple(rng.randrange(slots) for _ in range(shards)), slots, 0)


def disturb(run: Run, seed: int, *, most_slots: int = 4, plans: float = 0.1) -> Restless:
    """Changes routes, slots and components of a run from its next step on, while it runs."""
    restless = Restless(run, seed, most_slots=most_slots, plans=plans)
    run._stepper.observers.attach(restless)  # noqa: SLF001
    restless.ask()
    return restless


def act_after(run: Run, acts: Mapping[int, Sequence[Callable[[], None]]]) -> None:
    """Has something done after some steps of a run, by their numbers."""
    acting = Acting(run, acts)
    run._stepper.observers.attach(acting)  # noqa: SLF001
    acting.act()
