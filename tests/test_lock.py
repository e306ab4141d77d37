"""requirements.lock pins every package that pyproject.toml asks for, with hashes."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
ENTRY = re.compile(
    r"^(?P<pin>[a-z0-9-]+==[^ ]+( ; .+)?)( \\\n    --hash=sha256:[0-9a-f]{64})+\n", re.MULTILINE
)
ADVICE = "run `make lock`, or `make upgrade` for the newest versions"


def asked_for(extra: str) -> Iterator[Requirement]:
    """The requirements of an extra, and of the extras of the project that it names."""
    for text in PROJECT["project"]["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["project"]["name"]:
            for other in sorted(requirement.extras):
                yield from asked_for(other)
        else:
            yield requirement


ASKED_FOR = [
    *map(Requirement, PROJECT["project"]["dependencies"]),
    *asked_for("dev"),
    *map(Requirement, PROJECT["dependency-groups"]["setup"]),
    *map(Requirement, PROJECT["build-system"]["requires"]),
]
PINNED = [Requirement(found["pin"]) for found in ENTRY.finditer(LOCK)]
HERE = {
    pin.name: next(iter(pin.specifier)).version
    for pin in PINNED
    if pin.marker is None or pin.marker.evaluate()
}


def test_the_lock_has_pins_with_hashes_and_nothing_else() -> None:
    assert not ENTRY.sub("", LOCK), "these lines are not pins with hashes"


@pytest.mark.parametrize("requirement", ASKED_FOR, ids=str)
def test_each_requirement_of_pyproject_is_pinned_within_its_range(requirement: Requirement) -> None:
    version = HERE.get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement} is not in requirements.lock: {ADVICE}"
    assert version in requirement.specifier, (
        f"requirements.lock has {requirement.name} {version}: {ADVICE}"
    )


def test_what_the_pinned_packages_need_is_pinned_too() -> None:
    missing = []
    for name in HERE:
        try:
            needs = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:  # pip installed the packages, and could not get uv
            continue
        for need in needs:
            if need.marker is not None and not need.marker.evaluate({"extra": ""}):
                continue
            if HERE.get(canonicalize_name(need.name), "") not in need.specifier:
                missing.append(f"{name} needs {need}")
    assert not missing, ADVICE
