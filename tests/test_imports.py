"""The import rule: each package and what it may import; everything else is forbidden.

Sources are parsed, never imported; an import for types alone counts too. The picture in docs/explanation/architecture.md
is made from the table: `python tests/test_imports.py` writes it again.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent.parent / "anabranch"
PICTURE = PACKAGE.parent / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- packages: made by tests/test_imports.py -->", "<!-- end of packages -->"

_PURE_BASE = "aggregates errors topology types"
_STATE = "state state/checkpoint state/codec state/memory state/store"
_SPARK = "spark spark/api spark/compile spark/driver"

# Package -> the packages that it may import. A module at the top counts as one, and so does a
# package inside `state` or `spark`; "state" and "spark" alone are the modules beside those.
# "anabranch" exports the public names: the __init__.py of anabranch and of workloads, which import
# what needs Spark on first use.
MAY_IMPORT = {
    package: frozenset(allowed.split())
    for package, allowed in {
        "errors": "",
        "types": "errors",
        "faults": "errors",
        "aggregates": "errors types",
        "topology": "aggregates errors types",
        "workloads": "errors topology",
        "plan": _PURE_BASE,
        "place": "errors plan",
        "elastic": "errors place plan topology",
        "state/codec": f"{_PURE_BASE} plan",
        "state/store": f"{_PURE_BASE} plan state/codec",
        "state/memory": f"{_PURE_BASE} plan state/codec state/store",
        "metrics": "",
        "observer": "elastic metrics",
        "state/checkpoint": (f"{_PURE_BASE} elastic metrics observer plan state/codec state/store"),
        "state": f"{_PURE_BASE} plan state/checkpoint state/codec state/memory state/store",
        "runtime": f"{_PURE_BASE} elastic faults plan {_STATE}",
        "spark": f"{_PURE_BASE} plan runtime workloads {_STATE}",
        "spark/compile": f"{_PURE_BASE} elastic plan runtime spark",
        "spark/driver": (
            f"{_PURE_BASE} elastic faults metrics observer plan runtime spark spark/compile {_STATE}"
        ),
        "spark/api": (
            f"{_PURE_BASE} elastic metrics observer plan runtime "
            f"spark spark/compile spark/driver {_STATE}"
        ),
        "anabranch": f"aggregates elastic errors metrics observer runtime topology workloads {_SPARK}",
        "testing": f"anabranch {_PURE_BASE} elastic faults metrics observer plan runtime workloads {_STATE} {_SPARK}",
        "bench": f"anabranch {_PURE_BASE} elastic plan testing workloads {_STATE} {_SPARK}",
        "lab": f"{_PURE_BASE} bench elastic place plan {_STATE}",
        "cli": f"anabranch {_PURE_BASE} bench elastic lab metrics observer plan runtime testing {_STATE} {_SPARK}",
        "__main__": "cli",
    }.items()
}
EXPORTING = frozenset({("__init__",), ("workloads", "__init__")})
PURE = frozenset({"aggregates", "elastic", "place", "plan", "workloads"})
MAY_IMPORT_PYSPARK = frozenset({"bench", *_SPARK.split()})

# Clocks, randomness, I/O, threads, and ways around this list.
IMPURE_MODULES = frozenset(
    "asyncio concurrent ctypes duckdb fcntl fileinput glob http importlib io lmdb logging mmap multiprocessing "
    "numpy.random os pathlib pickle random rich runpy secrets select selectors shutil signal socket sqlite3 ssl "
    "subprocess tempfile threading time typer urllib uuid".split()
)
IMPURE_BUILTINS = frozenset({"__import__", "breakpoint", "exec", "eval", "input", "open", "print"})
CLOCK_METHODS = frozenset({"now", "today", "utcnow"})


def modules_named(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Every module that a source imports, with its line; relative imports start at `package`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*parents, *([module] if module else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if ast.unparse(
                func
            ).endswith(("import_module", "__import__")):
                yield node.lineno, name


def impure_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Calls that read a clock, do I/O or draw without a seed, and need no forbidden import."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        unseeded = name.startswith(("np.random.", "numpy.random.")) and not (
            name.endswith("default_rng") and node.args
        )
        clock = isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_METHODS
        if name in IMPURE_BUILTINS or unseeded or clock:
            yield node.lineno, f"{name}()"


def is_below(module: str, roots: frozenset[str]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def package_of(parts: tuple[str, ...]) -> str:
    """The package of a module, given the parts of its name below `anabranch`."""
    if len(parts) > 2 and f"{parts[0]}/{parts[1]}" in MAY_IMPORT:
        return f"{parts[0]}/{parts[1]}"
    return parts[0] if parts and parts[0] in MAY_IMPORT else "anabranch"


def package_named(module: str) -> str | None:
    """The package that an import reaches; None outside of anabranch."""
    root, *parts = module.split(".")
    if root != "anabranch":
        return None
    if len(parts) > 1 and f"{parts[0]}/{parts[1]}" in MAY_IMPORT:
        return f"{parts[0]}/{parts[1]}"
    return (
        parts[0]
        if parts and parts[0] in {package.partition("/")[0] for package in MAY_IMPORT}
        else "anabranch"
    )


def violations(source: str, path: str) -> list[str]:
    """The modules that a source at `path` (below anabranch/) must not use, one line each."""
    tree = ast.parse(source, filename=path)
    parts = Path(path).with_suffix("").parts
    package = package_of(() if parts in EXPORTING else parts)
    found = list(impure_calls(tree)) if package in PURE else []
    for line, module in modules_named(tree, ".".join(["anabranch", *parts[:-1]])):
        pyspark = (
            is_below(module, frozenset({"pyspark", "py4j"})) and package not in MAY_IMPORT_PYSPARK
        )
        impure = package in PURE and is_below(module, IMPURE_MODULES)
        named = package_named(module)
        if pyspark or impure or (named not in {None, package} and named not in MAY_IMPORT[package]):
            found.append((line, module))
    return [
        f"anabranch/{path}:{line}: {package} must not use {module}"
        for line, module in sorted(set(found))
    ]


def drawn() -> str:
    """The table as a Mermaid picture: arrows to packages that are not reached through others."""
    lines = ["```mermaid", "flowchart TD"]
    for package in MAY_IMPORT.keys() - {"anabranch", "__main__"}:
        allowed = MAY_IMPORT[package] - {"anabranch"}
        direct = [each for each in allowed if not any(each in _reach(other) for other in allowed)]
        lines += [f"  {_id(package)}[{package}] --> {_id(each)}[{each}]" for each in direct]
    return "\n".join([BEGIN, *lines[:2], *sorted(lines[2:]), "```", END])


def _reach(package: str) -> frozenset[str]:
    return MAY_IMPORT[package].union(*(_reach(each) for each in MAY_IMPORT[package]))


def _id(package: str) -> str:
    return package.replace("/", "_")


def test_every_package_imports_only_what_it_may() -> None:
    found = [
        violation
        for path in sorted(PACKAGE.rglob("*.py"))
        for violation in violations(
            path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix()
        )
    ]
    assert not found, "\n".join(found)


def test_no_two_packages_import_each_other() -> None:
    assert [package for package in MAY_IMPORT if package in _reach(package)] == []


def test_every_package_is_in_the_table_and_every_entry_is_a_package() -> None:
    at_top = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert at_top - {"__init__"} == {package.partition("/")[0] for package in MAY_IMPORT} - {
        "anabranch"
    }
    inner = {
        f"{outer}/{path.name}"
        for outer in ("state", "spark")
        for path in (PACKAGE / outer).iterdir()
        if path.is_dir()
    }
    assert {each for each in inner if "__" not in each} == {
        package for package in MAY_IMPORT if "/" in package
    }


def test_no_package_has_more_than_15_modules_in_one_list() -> None:
    sizes = {
        path.parent: len(list(path.parent.glob("*.py"))) - 1
        for path in PACKAGE.rglob("__init__.py")
    }
    assert {str(path): size for path, size in sizes.items() if size > 15} == {}


def test_a_worker_that_loads_the_runtime_loads_no_spark() -> None:
    code = "import sys, anabranch.runtime.slot, anabranch.runtime.apply.task; print([m for m in sys.modules if 'spark' in m])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_workloads_and_testing_are_imported_when_first_used() -> None:
    code = (
        "import sys, anabranch as ab; before = [m for m in sys.modules if 'spark' in m or 'anabranch.testing' in m];"
        "print(before, ab.workloads.zipf(9, 1).count, ab.testing.ProcessTester.__name__, ab.workloads.stream.__name__)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[] 9 ProcessTester stream"


@pytest.mark.parametrize("name", ["anabranch", "anabranch.workloads", "anabranch.testing"])
def test_every_public_name_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    assert [each for each in module.__all__ if not hasattr(module, each)] == []
    assert {*module.__all__} <= {*dir(module)}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        module.nothing  # noqa: B018 - it must raise


def test_the_top_level_has_what_a_topology_needs_and_nothing_else() -> None:
    modules = [importlib.import_module(f"anabranch.{each}") for each in ("workloads", "testing")]
    beside = {name for module in modules for name in module.__all__}
    assert {*anabranch.__all__} & {*beside, "every", "some"} == set()


def test_the_picture_in_the_docs_is_the_table() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert text[text.index(BEGIN) : text.index(END) + len(END)] == drawn(), (
        "run: python tests/test_imports.py"
    )


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("state/store/shard.py", "from pyspark.sql import DataFrame"),
        ("topology/stream.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("__init__.py", "def start():\n    import pyspark.sql.functions as F"),
        ("testing/chaos.py", "importlib.import_module('pyspark.sql')"),
        ("plan/panes.py", "import time"),
        ("plan/panes.py", "from os.path import join"),
        ("plan/panes.py", "from datetime import datetime\nat = datetime.now(tz=UTC)"),
        ("plan/panes.py", "open('x')"),
        ("elastic/scaling.py", "import numpy as np\nnp.random.rand()"),
        ("elastic/scaling.py", "import numpy as np\nnp.random.default_rng()"),
        ("elastic/scaling.py", "from numpy import random"),
        ("place/packing.py", "from anabranch.state.store.shard import Shard"),
        ("place/packing.py", "from anabranch import Topology"),
        ("place/packing.py", "import anabranch"),
        ("place/deep/packing.py", "from ...state.shard import Shard"),
        ("topology/stream.py", "def start():\n    from anabranch import spark"),
        ("topology/stream.py", "from ..spark.run import Run"),
        ("topology/stream.py", "from .. import Topology"),
        ("state/store/shard.py", "import anabranch.spark.api.run"),
        ("spark/run.py", "from anabranch.cli import main"),
        ("testing/chaos.py", "from anabranch import cli"),
        ("__init__.py", "from .cli import main"),
    ],
)
def test_the_rule_detects_a_violation(path: str, source: str) -> None:
    assert len(violations(source, path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "spark/run.py",
            "from pyspark.sql import DataFrame\nfrom anabranch.state.store.shard import Shard",
        ),
        ("bench/windows.py", "import pyspark, time"),
        ("__init__.py", "from anabranch.spark import run\nfrom .topology import Topology"),
        ("testing/chaos.py", "from anabranch.spark import run"),
        ("cli/main.py", "import anabranch as ab\nfrom anabranch.spark import run"),
        (
            "plan/panes.py",
            "from datetime import timedelta\nfrom anabranch.topology import Window\nfrom . import cost",
        ),
        ("plan/panes.py", "from anabranch.errors import PlanError\nfrom ..errors import PlanError"),
        ("elastic/scaling.py", "import numpy as np\nnp.random.default_rng(seed)"),
        ("state/store/shard.py", "import lmdb, os, time\nfrom timeit import default_timer"),
    ],
)
def test_the_rule_lets_pass_what_is_allowed(path: str, source: str) -> None:
    assert violations(source, path) == []


if __name__ == "__main__":
    page = PICTURE.read_text(encoding="utf-8")
    PICTURE.write_text(
        page[: page.index(BEGIN)] + drawn() + page[page.index(END) + len(END) :], encoding="utf-8"
    )
