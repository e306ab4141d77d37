"""Permanent change, to show that it changes no results: other routes and slots before every step, other components before some."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from anabranch.elastic.settings import OFF, Elastic
from anabranch.plan.planners.registry import PLANNERS
from anabranch.plan.route import Route
from anabranch.runtime.reports import Report
from anabranch.spark.api.run import Run
from anabranch.spark.driver.observe import Place
from anabranch.spark.driver.progress import Progress
from anabranch.spark.driver.steering import Planning, Steering
from anabranch.spark.driver.step import Stepper
from anabranch.state.checkpoint.commits import Commit


class Restless(Steering):
    """Steers as no controller would, by a seed. Slots without a shard and shards all in one slot are among what it does."""

    def __init__(
        self, seed: int, make_plan: Planning, *, most_slots: int = 4, plans: float = 0.1
    ) -> None:
        super().__init__(Elastic(mode=OFF), Place(cores=1), make_plan, None)
        self._rng, self._planning, self._most, self._plans = (
            random.Random(seed),
            make_plan,
            most_slots,
            plans,
        )
        self.offered: set[frozenset[str]] = set()  # the components of the plans that it asked for

    def before(self, stepper: Stepper) -> None:
        if self._rng.random() < self._plans:
            stepper.pending.plan = self._planning(
                self._rng.choice(sorted(PLANNERS)), stepper.statistics.rates()
            )
            self.offered.add(frozenset(str(each.name) for each in stepper.pending.plan.components))
        shards = stepper.checkpoint.header.shards
        planned = (
            [each.name for each in stepper.pending.plan.components]
            if stepper.pending.plan is not None
            else []
        )
        for name in (*stepper.routes, *planned):
            stepper.pending.routes[name] = random_route(self._rng, shards, min(self._most, shards))


class Acting(Steering):
    """Does something before the steps that follow some others, whatever else steers: a person who asks at the right time."""

    def __init__(
        self, inner: Steering | None, acts: Mapping[int, Sequence[Callable[[], None]]]
    ) -> None:
        super().__init__(Elastic(mode=OFF), Place(cores=1), None, None)
        self._inner = (
            inner if inner is not None else Steering(Elastic(mode=OFF), Place(cores=1), None, None)
        )
        self._acts = dict(acts)

    def before(self, stepper: Stepper) -> None:
        """Acts by the last step that is committed, without those that only wrote state anew."""
        self._inner.before(stepper)
        last = stepper.last
        for act in self._acts.pop(last.step - last.replans, ()) if last is not None else ():
            act()

    def after(
        self, stepper: Stepper, commit: Commit, progress: Progress, reports: Sequence[Report]
    ) -> None:
        self._inner.after(stepper, commit, progress, reports)

    def save(self, stepper: Stepper) -> None:
        self._inner.save(stepper)

    def end(self, stepper: Stepper) -> None:
        self._inner.end(stepper)


def random_route(rng: random.Random, shards: int, most_slots: int) -> Route:
    """Any shard in any of some slots."""
    slots = rng.randint(1, most_slots)
    return Route(tuple(rng.randrange(slots) for _ in range(shards)), slots, 0)


def disturb(run: Run, seed: int, *, most_slots: int = 4, plans: float = 0.1) -> Restless:
    """Changes routes, slots and components of a run from its next step on, for as long as it runs."""
    restless = Restless(seed, run._make_plan, most_slots=most_slots, plans=plans)  # noqa: SLF001
    run._stepper.steering = restless  # noqa: SLF001
    return restless
