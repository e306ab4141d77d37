"""The tests of a module are found by its name: `state/codec/blob.py` has `test_blob.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "anabranch"

# Packages whose modules must have a test file of their name. "" is the modules at the top.
ENFORCED = (
    "",
    "aggregates",
    "elastic",
    "place",
    "plan",
    "runtime",
    "state",
    "topology",
    "workloads",
)

# Packages that are tested in another way, each with the reason.
OTHERWISE = {
    "bench": "its commands are run as a whole: a benchmark is right when its two sides agree",
    "cli": "tested by what users type, in tests/cli",
    "lab": "experiments are run as a whole; tests/lab checks what they find",
    "spark": "tested by feature, with Spark: a module alone is rarely worth a session",
    "testing": "most of it is what other tests use; tests/testing has what can be wrong alone",
}

# Modules without a test file of their own, each with the reason.
EXCEPTIONS = {
    "__main__": "calls the command line",
    "runtime/tasks": "values only; tests/runtime/test_operator.py and test_slot.py use all of them",
    "state/store/ports": "protocols only; tests/contracts/test_shard_stores.py",
}


def modules_of(package: str) -> list[str]:
    """The modules of a package, without those that only make it one."""
    found = (PACKAGE / package).glob("*.py" if not package else "**/*.py")
    names = sorted(path.relative_to(PACKAGE).with_suffix("").as_posix() for path in found)
    return [name for name in names if not name.endswith("__init__")]


@pytest.mark.parametrize("package", ENFORCED)
def test_every_module_has_a_test_file_of_its_name(package: str) -> None:
    missing = []
    for name in modules_of(package):
        path = TESTS / Path(name).parent / f"test_{Path(name).name}.py"
        if name not in EXCEPTIONS and not path.exists():
            missing.append(f"anabranch/{name}.py: {path.relative_to(TESTS.parent)}")
    assert not missing, "\n".join(missing)


def test_no_exception_outlives_its_module_or_its_reason() -> None:
    for name in EXCEPTIONS:
        assert (PACKAGE / f"{name}.py").exists(), f"{name} is gone"
        path = TESTS / Path(name).parent / f"test_{Path(name).name}.py"
        assert not path.exists(), f"{name} has a test file and needs no exception"


def test_every_package_is_in_the_table() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == {*ENFORCED, *OTHERWISE} - {""}
    assert not {*ENFORCED} & {*OTHERWISE}
