"""`anabranch state --local` lists the state of all runs on this machine, and removes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anabranch.cli import app
from anabranch.state.store.host import Host, open_host
from anabranch.state.store.local import ClaimedState, Hold


def state(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["state", *map(str, arguments)])


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """The state of three runs, of which one is active."""
    host = open_host(str(tmp_path / "root"))
    for age, name in enumerate(("first", "second", "third")):
        location = tmp_path / name
        location.mkdir()
        (location / "anabranch.json").touch()
        ClaimedState(host, f"id-{name}", 1 << 40).claim(str(location), []).release()
        data = host.root / f"id-{name}" / "data"
        data.write_bytes(os.urandom(100_000))
        for path in (data, host.root / f".id-{name}.active", data.with_name("checkpoint.json")):
            os.utime(path, (1_800_000_000 + age, 1_800_000_000 + age))
    return host


def test_it_lists_checkpoint_size_last_use_and_whether_it_is_active(
    host: Host, tmp_path: Path
) -> None:
    with Hold(host, "id-second"):
        facts = json.loads(state("--local", "--root", host.root, "--json").stdout)
        shown = state("--local", "--root", host.root).stdout
    listed = {each["id"]: each for each in facts["states"]}
    assert {name: each["active"] for name, each in listed.items()} == {
        "id-first": False,
        "id-second": True,
        "id-third": False,
    }
    assert listed["id-first"]["location"] == str(tmp_path / "first")
    assert listed["id-first"]["bytes"] >= 100_000
    assert listed["id-first"]["used_at"] == 1_800_000_000
    assert f"state root {host.root}: 3 runs" in shown
    assert "2027-01-15 08:00:00" in shown


def test_it_removes_the_state_of_a_checkpoint_but_never_an_active_one(
    host: Host, tmp_path: Path
) -> None:
    with Hold(host, "id-second"):
        refused = state("--local", "--root", host.root, "--remove", tmp_path / "second")
        assert refused.exit_code == 2
        assert "a run uses this state; stop the run first" in refused.stderr
        done = state("--local", "--root", host.root, "--remove", tmp_path / "first")
        assert done.exit_code == 0
        assert f"of {tmp_path}/first" in done.stdout.replace("\n", "")
        assert (tmp_path / "first" / "anabranch.json").exists(), "the checkpoint stays"
        assert not (host.root / "id-first").exists()
        facts = json.loads(
            state("--local", "--root", host.root, "--remove", "all", "--json").stdout
        )
    assert [each["id"] for each in facts["removed"]] == ["id-third"]
    assert [each["id"] for each in facts["states"]] == ["id-second"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--local", "--root", "ROOT", "--remove", "nowhere"], "no such state; valid: "),
        (["--local", "--root", "nowhere"], "--root nowhere is not a directory"),
        (["there", "--local"], "valid: a checkpoint or --local"),
        (["there", "--remove", "all"], "--remove and --root are for the node-local state"),
        ([], "state needs a checkpoint, or --local"),
    ],
)
def test_mistakes_are_refused(host: Host, arguments: list[str], why: str) -> None:
    found = state(*(str(host.root) if each == "ROOT" else each for each in arguments))
    assert found.exit_code == 2
    assert why in found.stderr
    assert len(list(host.root.glob("id-*"))) == 3


def test_a_root_that_is_open_to_others_is_refused(host: Host) -> None:
    host.root.chmod(0o755)
    found = state("--local", "--root", host.root)
    assert found.exit_code == 1
    assert "close it: chmod 700" in found.stderr
