"""A loaded file behaves like a script, and its functions travel to workers by value."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark import cloudpickle

from anabranch.cli.load import error_place, load_topology

WriteFile = Callable[..., Path]


def test_the_main_part_of_a_file_does_not_run(file: WriteFile) -> None:
    path = file(
        "import anabranch as ab\napp = ab.Topology('x')\nif __name__ == '__main__':\n    raise "
        "SystemExit(1)"
    )
    assert load_topology(path).name == "x"


def test_a_file_may_import_its_neighbours_and_define_dataclasses(file: WriteFile) -> None:
    file("NAME = 'neighbour'", "neighbour_of_job.py")
    path = file(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport anabranch "
        "as ab, neighbour_of_job\n"
        "@dataclass\nclass Settings:\n    name: str\napp = "
        "ab.Topology(Settings(neighbour_of_job.NAME).name)"
    )
    assert load_topology(path).name == "neighbour"


def test_functions_of_a_file_are_pickled_with_their_code(file: WriteFile) -> None:
    path = file(
        "import anabranch as ab\napp = ab.Topology('x')\nK = 3\ndef times(n):\n    return K * "
        "n\napp.times = times"
    )
    times = load_topology(path).times  # type: ignore[attr-defined]
    assert times.__module__ not in sys.modules
    assert pickle.loads(cloudpickle.dumps(times))(4) == 12  # noqa: S301


def test_future_imports_of_this_package_do_not_apply_to_the_file(file: WriteFile) -> None:
    path = file(
        "import anabranch as ab\ndef f(x: int): ...\napp = "
        "ab.Topology(f.__annotations__['x'].__name__)"
    )
    assert load_topology(path).name == "int"


def test_the_place_of_an_error_is_found_in_its_causes_and_in_the_text_of_workers(
    file: WriteFile,
) -> None:
    path = file("")
    try:
        exec(compile("\n\n1 / 0", str(path), "exec"), {})  # noqa: S102
    except ZeroDivisionError as cause:
        outer = RuntimeError("the step failed")
        outer.__cause__ = cause
    assert error_place(outer, path) == f"{path}:3: "
    assert error_place(RuntimeError(f'x\n  File "{path}", line 7, in f\ny'), path) == f"{path}:7: "
    assert error_place(RuntimeError("elsewhere"), path) == ""
