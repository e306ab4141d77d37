"""The log of events: lines that survive a crash, and a bound on their number."""

from __future__ import annotations

from pathlib import Path

from anabranch.state.checkpoint.events import NAME, OLDER, Event, EventLog, read_events
from anabranch.state.checkpoint.files import Files


def event(step: int) -> Event:
    return Event(
        at=float(step), step=step, kind="decision", text=f"é {step}", figures={"slots": 2.0}
    )


def test_events_are_lines_that_survive_a_cut_and_are_bounded(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    log = EventLog(files)
    for step in range(1, 4):
        log.event(event(step))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"at":4.0,"step":4,"kin')  # the driver died here
    EventLog(files).event(event(5))
    assert read_events(files) == [event(step) for step in (1, 2, 3, 5)]
    small = EventLog(files, long_bytes=1000)
    for step in range(6, 200):
        small.event(event(step))
    assert (tmp_path / NAME).stat().st_size < 1200
    assert (tmp_path / OLDER).stat().st_size < 1200
    kept = [each.step for each in read_events(files)]
    assert kept == list(range(kept[0], 200))
    assert len(kept) > 10
