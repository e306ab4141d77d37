"""Where a checkpoint is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anabranch.spark.driver.opening import located

if TYPE_CHECKING:
    from pathlib import Path


def test_a_directory_is_named_in_full_and_a_uri_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert located("chk/") == located(tmp_path / "chk") == str(tmp_path / "chk")
    assert located("/") == "/"
    for uri in ("s3://bucket/chk", "file:/chk", "file:///chk"):
        assert located(uri) == uri
