"""How two fingerprints differ. A fingerprint is what state depends on, as readable text."""

from __future__ import annotations

from collections.abc import Mapping


def differences(stored: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """One line for each part in which two fingerprints differ."""
    return [
        f"{part}: the checkpoint has [{stored.get(part, 'nothing')}], "
        f"the topology has [{wanted.get(part, 'nothing')}]"
        for part in {**wanted, **stored}
        if stored.get(part) != wanted.get(part)
    ]
