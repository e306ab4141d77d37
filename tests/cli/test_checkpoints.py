"""A fresh run never mixes its results with those of another, and removes only its own files."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.cli.checkpoints import checkpoint_for
from anabranch.cli.load import MistakeError
from anabranch.topology import graph as g


def topology(out: Path) -> ab.Topology:
    app = ab.Topology("my job/1")
    source = g.Source(
        name="s", fields=(g.Field("at", "timestamp"),), event_time="at", unit_us=None, delay_us=0
    )
    app.add(source)
    app.add_sink("s", ab.parquet(out), late=False, name=None)
    app.add_sink("s", ab.memory(), late=False, name=None)
    return app


def test_a_temporary_checkpoint_goes_with_the_run(tmp_path: Path) -> None:
    with checkpoint_for(topology(tmp_path / "out"), None, fresh=False) as place:
        assert place.temporary
        assert "anabranch-my-job-1-" in place.location
        assert Path(place.location).is_dir()
    assert not Path(place.location).exists()


def test_results_of_another_run_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "step-00000001-results.parquet").touch()
    with pytest.raises(
        MistakeError, match="out holds results of another run; --fresh removes them"
    ):
        checkpoint_for(topology(out), str(tmp_path / "chk"), fresh=False).__enter__()


def test_a_checkpoint_continues_its_own_results(tmp_path: Path) -> None:
    out, chk = tmp_path / "out", tmp_path / "chk"
    out.mkdir()
    chk.mkdir()
    (out / "step-00000001-results.parquet").touch()
    (chk / "anabranch.json").touch()
    with checkpoint_for(topology(out), str(chk), fresh=False) as place:
        assert place.location == str(chk)
    assert (chk / "anabranch.json").exists()


def test_fresh_removes_the_checkpoint_and_results_and_nothing_else(tmp_path: Path) -> None:
    out, chk = tmp_path / "out", tmp_path / "chk"
    (chk / "commits").mkdir(parents=True)
    out.mkdir()
    for name in (out / "step-00000001-results.parquet", out / "notes.txt", chk / "anabranch.json"):
        name.touch()
    with checkpoint_for(topology(out), str(chk), fresh=True):
        assert [each.name for each in out.iterdir()] == ["notes.txt"]
        assert not chk.exists()


def test_fresh_leaves_a_directory_alone_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(MistakeError, match="is not a checkpoint"):
        checkpoint_for(topology(tmp_path / "out"), str(tmp_path), fresh=True).__enter__()
    assert (tmp_path / "thesis.txt").exists()
