"""The import rule of the house: pyspark stays in spark/ and bench/, the planners are functions of values, and nothing
below the command line knows of it. Sources are parsed, never imported; an import for types alone counts too.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent.parent / "anabranch"
PURE = ("aggregates", "plan", "elastic", "place", "workloads")
MAY_IMPORT_PYSPARK = ("spark", "bench")

# Clocks, randomness, I/O, threads, and ways around this list.
IMPURE_MODULES = frozenset(
    "asyncio concurrent ctypes duckdb fcntl fileinput glob http importlib io lmdb logging mmap multiprocessing "
    "numpy.random os pathlib pickle random rich runpy secrets select selectors shutil signal socket sqlite3 ssl "
    "subprocess tempfile threading time typer urllib uuid".split()
)
IMPURE_BUILTINS = frozenset({"__import__", "breakpoint", "exec", "eval", "input", "open", "print"})
CLOCK_METHODS = frozenset({"now", "today", "utcnow"})

# Layer -> the layers that it must not know. "" is anabranch/__init__.py, which re-exports everything.
ABOVE = {
    "topology": frozenset({"", "bench", "cli", "lab", "spark", "state", "testing"}),
    **dict.fromkeys(PURE, frozenset({"", "bench", "cli", "lab", "spark", "state", "testing"})),
    "state": frozenset({"", "bench", "cli", "lab", "spark"}),
    "spark": frozenset({"", "bench", "cli", "lab"}),
    "cli": frozenset[str](),
    "__main__": frozenset[str](),
}
LAYERS = frozenset({*ABOVE, "bench", "lab", "testing"})


def modules_named(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Every module that a source names in an import, with its line; `package` is where relative imports start."""
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
    """Calls that read a clock, do I/O or draw without a seed, though nothing forbidden was imported for them."""
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


def layer_named(module: str, modules_at_top: frozenset[str]) -> str | None:
    """The layer of anabranch that an import reaches: a name that is no part of the package comes from its __init__."""
    root, _, rest = module.partition(".")
    if root != "anabranch":
        return None
    layer = rest.partition(".")[0]
    return layer if layer in LAYERS | modules_at_top else ""


def violations(source: str, path: str, modules_at_top: frozenset[str] = frozenset()) -> list[str]:
    """What a source at `path` (below anabranch/) names and must not, a line each."""
    tree = ast.parse(source, filename=path)
    *folders, name = Path(path).with_suffix("").parts
    layer = folders[0] if folders else name
    above = ABOVE.get(layer, frozenset({"cli"}))
    found = list(impure_calls(tree)) if layer in PURE else []
    for line, module in modules_named(tree, ".".join(["anabranch", *folders])):
        pyspark = (
            is_below(module, frozenset({"pyspark", "py4j"})) and layer not in MAY_IMPORT_PYSPARK
        )
        impure = layer in PURE and is_below(module, IMPURE_MODULES)
        if pyspark or impure or layer_named(module, modules_at_top) in above:
            found.append((line, module))
    return [
        f"anabranch/{path}:{line}: {layer} must not use {module}"
        for line, module in sorted(set(found))
    ]


def test_every_layer_imports_only_what_it_may() -> None:
    modules_at_top = frozenset(
        path.stem for path in PACKAGE.glob("*") if path.suffix in ("", ".py")
    )
    found = [
        violation
        for path in sorted(PACKAGE.rglob("*.py"))
        for violation in violations(
            path.read_text(encoding="utf-8"),
            path.relative_to(PACKAGE).as_posix(),
            modules_at_top - {"__init__"},
        )
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("state/shard.py", "from pyspark.sql import DataFrame"),
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
        ("place/packing.py", "from anabranch.state import Shard"),
        ("place/packing.py", "from anabranch import Topology"),
        ("place/packing.py", "import anabranch"),
        ("place/deep/packing.py", "from ...state.shard import Shard"),
        ("topology/stream.py", "def start():\n    from anabranch import spark"),
        ("topology/stream.py", "from ..spark.run import Run"),
        ("topology/stream.py", "from .. import Topology"),
        ("state/shard.py", "import anabranch.spark.api.run"),
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
        ("spark/run.py", "from pyspark.sql import DataFrame\nfrom anabranch.state import Shard"),
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
        ("state/shard.py", "import lmdb, os, time\nfrom timeit import default_timer"),
    ],
)
def test_the_rule_lets_pass_what_is_allowed(path: str, source: str) -> None:
    assert violations(source, path, frozenset({"errors"})) == []
