"""The files of a chaos run: its directories, its published input, and damage to its state."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.state.checkpoint.commits import open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.testing.chaos.plan import COMMIT_LOST, DAMAGES, Act


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """The directories of one run of one case."""

    root: str
    files: str  # all files of the input, of which some are published

    def of(self, name: str) -> Path:
        return Path(self.root, name)

    def checkpoint(self) -> Files:
        return Files(str(self.of("checkpoint")))

    def publish(self, count: int) -> None:
        """Publishes the first files of each source, with their modification times."""
        every = sorted(Path(self.files).rglob("*.parquet"))
        for directory in {file.parent for file in every}:
            source = self.of("input") / directory.relative_to(self.files)
            source.mkdir(parents=True, exist_ok=True)
            for file in [each for each in every if each.parent == directory][:count]:
                if not (source / file.name).exists():
                    os.link(file, source / file.name)

    def keep_copies(self) -> None:
        """Copies every shard's file, to restore it later."""
        self.of("copies").mkdir(exist_ok=True)
        for file in self.of("state").glob("*/*/*/data.mdb"):
            shutil.copyfile(file, self.of("copies") / _copy_name(file))


def perform(directory: RunDirectory, act: Act) -> dict[str, Any]:
    """Does to the files of a run what an act says, and returns how many it has changed."""
    if act.kind == COMMIT_LOST:
        return {"files": delete_last_commit(directory.of("checkpoint") / "spark")}
    if act.kind not in DAMAGES:
        return {"files": 0}
    rng = random.Random(act.seed)
    found = open_checkpoint(directory.checkpoint())
    committed = {shard for shards in found.chains.values() for shard in shards} if found else set()
    count = min(len(committed), max(1, round(act.share * len(committed))))
    chosen = sorted(rng.sample(sorted(committed), count))
    changed = 0
    for shard in chosen:
        for file in directory.of("state").glob(f"*/*/{shard:05d}/data.mdb"):
            changed += damage(act.kind, file, directory.of("copies"), rng)
    return {"files": changed, "shards": chosen}


def damage(kind: str, file: Path, copies: Path, rng: random.Random) -> bool:
    """Deletes, truncates or overwrites a shard's file, or puts an older copy in its place.

    False where nothing changes.
    """
    size = file.stat().st_size
    if kind == "state deleted":
        shutil.rmtree(file.parent)
    elif kind == "state truncated":
        os.truncate(file, rng.choice((0, 100, 4096, size // 2, max(0, size - 4096))))
    elif kind == "state overwritten":
        with file.open("r+b") as opened:
            for _ in range(rng.randint(1, 4)):
                opened.seek(rng.choice((0, 4096, rng.randrange(size + 1))))
                opened.write(rng.randbytes(rng.choice((64, 1000, 8192))))
    else:
        copy = copies / _copy_name(file)
        if not copy.exists() or copy.read_bytes() == file.read_bytes():
            return False
        draft = file.with_suffix(".draft")
        shutil.copyfile(copy, draft)
        draft.replace(file)
    return True


def _copy_name(file: Path) -> str:
    """The name of a copy: by operator and shard."""
    return f"{file.parent.parent.name} {file.parent.name}"


def delete_last_commit(spark: Path) -> int:
    """Deletes Spark's record that its last batch is done, so that Spark calls it again.

    Only where it is the last entry of Spark's log. Returns how many files it has deleted.
    """
    commits, offsets = (
        [int(file.name) for file in (spark / name).glob("*") if file.name.isdigit()]
        for name in ("commits", "offsets")
    )
    if not commits or max(commits) != max(offsets, default=-1):
        return 0
    (spark / "commits" / str(max(commits))).unlink()
    (spark / "commits" / f".{max(commits)}.crc").unlink(missing_ok=True)
    return 1
