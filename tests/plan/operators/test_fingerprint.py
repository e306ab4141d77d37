"""How two fingerprints differ, as text that names both."""

from __future__ import annotations

from anabranch.plan.operators.fingerprint import differences


def test_equal_fingerprints_do_not_differ() -> None:
    assert differences({"keys": "k: int"}, {"keys": "k: int"}) == []


def test_each_part_that_differs_or_is_missing_is_named_with_both_texts() -> None:
    assert differences({"keys": "a", "old": "x"}, {"keys": "b", "new": "y"}) == [
        "keys: the checkpoint has [a], the topology has [b]",
        "new: the checkpoint has [nothing], the topology has [y]",
        "old: the checkpoint has [x], the topology has [nothing]",
    ]
