"""`process` in a slot task: the cells that a step reads and writes, and what the log needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.state.codec.cells import (
    decoded_keys,
    replayed,
)
from tests.runtime.process.process_slot import (
    EPOCH,
    Count,
    Slot,
    at,
    plan_of,
)


def test_the_log_holds_a_small_multiple_of_the_state_and_a_restore_needs_nothing_else(
    tmp_path: Path,
) -> None:
    slot = Slot(plan_of(Count, "k bigint, at timestamp", ["k"]), tmp_path, shards=1)
    slot.run([(key, at(0)) for key in range(5_000)], None)
    state, sizes, rng = slot.log_bytes(), [], np.random.default_rng(1)
    counts = dict.fromkeys(range(5_000), 1)
    for i in range(60):
        keys = rng.integers(0, 5_000, 40).tolist()
        for key in set(keys):
            counts[key] += keys.count(key)
        slot.run(
            [(key, at(0)) for key in keys],
            None,
            crashes=int(i % 5 == 1),
            lose=[0] if i % 7 == 3 else [],
        )
        sizes.append(slot.chains[0][-1].delta[1])
        assert slot.log_bytes() < 4 * state
    assert max(sizes) < state / 5, "no step writes all of the state"
    assert len(slot.chains[0]) < 60, "what a pass through all cells has made needless is gone"
    cells, _ = replayed(slot.files.read(each.file, *each.delta) for each in slot.chains[0])
    keys = decoded_keys(list(cells), slot.plan.keys)["k0"].to_pylist()
    assert {key: cell[1:] for key, cell in zip(keys, cells.values(), strict=True)} == {
        key: np.uint8(n).tobytes() for key, n in counts.items()
    }
    found = slot.run([(key, at(0)) for key in range(5_000)], None, lose=[0])
    assert {row["k"]: row["n"] for row in found} == {key: n + 1 for key, n in counts.items()}


@pytest.mark.parametrize("crashes", [0, 1])
def test_a_step_that_changes_all_cells_is_all_that_a_restore_needs(
    tmp_path: Path, crashes: int
) -> None:
    slot = Slot(plan_of(Count, "k bigint, at timestamp", ["k"]), tmp_path, shards=1)
    slot.run([(key, at(0)) for key in range(900)], None)
    for key in range(5):
        slot.run([(key, at(0))], None)
    assert len(slot.chains[0]) > 1
    slot.run([(key, at(0)) for key in range(901)], None, crashes=crashes)  # one of them new
    assert len(slot.chains[0]) == 1
    assert slot.chains[0][0].since == slot.step
    slot.run([(900, at(0))], None)
    found = slot.run([(key, at(0)) for key in range(901)], None, lose=[0])
    assert {row["k"]: row["n"] for row in found} == {key: 4 if key < 5 else 3 for key in range(901)}
    assert slot.keys == 901


def test_keys_that_get_no_rows_and_no_timer_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.state.store.cell_shard import CellShard

    slot = Slot(plan_of(Count, "k bigint, at timestamp", ["k"]), tmp_path)
    slot.run([(key, at(0)) for key in range(500)], None)
    read: list[bytes] = []
    get = CellShard.get
    monkeypatch.setattr(
        CellShard,
        "get",
        lambda self, keys: get(self, [key for key in keys if not read.append(key)]),
    )
    slot.run([(7, at(1)), (7, at(2)), (9, at(2))], None)
    assert len(read) == 2


@pytest.mark.parametrize(
    ("kind", "key"), [("bigint", 7), ("date", EPOCH.date()), ("timestamp", EPOCH)]
)
def test_a_key_is_the_same_beside_null_and_without_it(tmp_path: Path, kind: str, key: Any) -> None:
    slot = Slot(plan_of(Count, f"at timestamp, k {kind}", ["k"]), tmp_path, shards=1)
    counts = [
        {row["k"]: row["n"] for row in slot.run([(at(step), each) for each in keys], None)}
        for step, keys in enumerate(([key], [key, None], [None], [key]))
    ]
    assert counts == [{key: 1}, {key: 2, None: 1}, {None: 2}, {key: 3}]
