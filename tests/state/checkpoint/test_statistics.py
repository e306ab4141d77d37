"""Statistics of the last steps for planners, and by which attributes shards were loaded."""

from __future__ import annotations

from pathlib import Path

from anabranch.plan.ids import PartId
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.statistics import Statistics, read_statistics


def test_what_was_measured_comes_back_as_planners_want_it(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    statistics = Statistics()
    statistics.add("w", ("a", "b"), [3, 0, 1], 2, 100)
    statistics.add("w", ("a", "b"), [0, 0, 4], 2, 200)
    statistics.save(files)
    found = read_statistics(files)
    assert found == statistics
    assert found.rates() == {"w": 4.0}
    measures = found.measures(3, {PartId("w"): {1: 5.0, 10: 7.5}})
    known = measures.operators["w"]
    assert (measures.shards, known.rate, known.state, known.keys, known.by) == (
        3,
        4.0,
        200.0,
        7.5,
        ("a", "b"),
    )
    assert known.loads == ((3, 0, 1), (0, 0, 4))
    assert known.loaded_shards == 2


def test_loads_by_other_attributes_are_forgotten_and_rates_are_not() -> None:
    statistics = Statistics()
    statistics.add("w", ("a", "b"), [3, 1], 0, 0)
    statistics.add("w", ("a",), [0, 8], 0, 0)
    known = statistics.measures(2, {}).operators["w"]
    assert (known.loads, known.rate, known.loaded_shards, known.keys) == (((0, 8),), 6.0, 1, None)


def test_without_measurements_nothing_is_known(tmp_path: Path) -> None:
    assert read_statistics(Files(str(tmp_path))).measures(8, {}).operators == {}
    assert Statistics().rates() is None
    (tmp_path / "statistics.json").write_text("{")
    assert read_statistics(Files(str(tmp_path))) == Statistics()
