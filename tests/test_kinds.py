"""Only the modules of a kind of operator ask which kind something is.

Sources are parsed, never imported. These count: isinstance, issubclass and match with the classes
of kinds; hasattr for what only one kind has; attributes of plans, nodes and contents that only one
kind has; and comparisons of `.kind`.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent.parent / "anabranch"

# The modules of the kinds: their classes, and the registries that name them.
HOMES = (
    "plan/operators/",
    "runtime/apply/",
    "runtime/joins.py",
    "runtime/kinds.py",
    "runtime/process/",
    "runtime/windows.py",
    "state/codec/joins.py",
    "state/kinds.py",
    "state/memory/cells.py",
    "state/memory/joins.py",
    "state/memory/kinds.py",
    "state/memory/sessions.py",
    "state/memory/shown.py",
    "state/memory/windows.py",
    "topology/operators.py",
    "topology/calendar.py",
    "topology/windows.py",
    # What users call to make one.
    "spark/api/streams.py",
    # These have topologies of their own, which are no plans.
    "bench/",
    "lab/",
    "testing/",
    "workloads/",
)
KINDS = frozenset(
    "Apply ApplyPlan CalendarWindow Compute Consolidate Join JoinContents JoinNode JoinPlan JoinSide JoinState "
    "Process ProcessContents ProcessNode ProcessPlan Session SessionContents SessionNode "
    "SessionPlan SessionState Window WindowsContents WindowsNode WindowsPlan WindowsState".split()
)
IDS = frozenset({"windows", "sessions", "join", "process"})
ATTRIBUTES = frozenset({"consolidation", "join", "logic", "process", "session", "sessions", "side"})
PLANNED = frozenset({"contents", "node", "plan", "slotted", "operator"})


def names_in(tree: ast.AST) -> set[str]:
    """The last names of all classes that an expression mentions."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def owner_of(node: ast.Attribute) -> str:
    """The last name of the expression whose attribute is read."""
    value = node.value
    return value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")


def switches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where code asks which kind it has."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]):
                if names_in(classes) & KINDS:
                    yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value=name)]):
                if name in ATTRIBUTES:
                    yield node.lineno, ast.unparse(node)
            case ast.MatchClass(cls=cls):
                if names_in(cls) & KINDS:
                    yield node.lineno, f"case {ast.unparse(cls)}"
            case ast.Attribute(attr=name) if name in ATTRIBUTES and owner_of(node) in PLANNED:
                yield node.lineno, ast.unparse(node)
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                read = {each.attr for each in sides if isinstance(each, ast.Attribute)}
                texts = {each.value for each in sides if isinstance(each, ast.Constant)}
                # Others have a kind too: a dtype, a generator of Spark.
                by_id = "kind" in read and (not texts or texts & IDS)
                if by_id or ("__name__" in read and (not texts or texts & KINDS)):
                    yield node.lineno, ast.unparse(node)


def test_no_code_outside_the_kinds_own_modules_asks_which_kind_it_has() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not str(path.relative_to(PACKAGE)).startswith(HOMES)
        for line, text in switches(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "isinstance(plan, JoinSide)",
        "isinstance(node, g.Join | g.Process)",
        "isinstance(each, (Window, Session))",
        "issubclass(type(plan), ProcessPlan)",
        "node.side == 'left'",
        "node.plan.session is None",
        "contents.process",
        "plan.join.how",
        "plan.kind == 'process'",
        "'join' != node.plan.kind",
        "node.plan.kind == other.plan.kind",
        "hasattr(plan, 'session')",
        "type(plan).__name__ == 'JoinSide'",
        "match plan:\n    case SessionPlan(session=session):\n        pass",
        "match operator:\n    case g.Consolidate():\n        pass",
    ],
)
def test_a_switch_is_found(planted: str) -> None:
    assert list(switches(ast.parse(planted)))


@pytest.mark.parametrize(
    "allowed",
    [
        "STATES[plan.kind].moved(checkpoint)",
        "isinstance(window, WindowDefinition)",
        "node.plan.holds_state",
        "' + '.join(names)",
        "run.process.wait()",
        "values.dtype.kind == 'O'",
    ],
)
def test_code_without_a_switch_is_let_pass(allowed: str) -> None:
    assert not list(switches(ast.parse(allowed)))


def test_every_module_of_a_kind_exists() -> None:
    assert [each for each in HOMES if not (PACKAGE / each).exists()] == []
