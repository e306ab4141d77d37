"""One module per kind of operator: what it keeps, what it emits, and how it describes itself.

A kind is an `OperatorPlan` (what a slot task needs, shipped to it), a `Node` (what stays with the
driver: expressions, explain, what a checkpoint notes and may change) and a `Contents` (what the
note of its state says). Everybody else calls their methods; `tests/test_kinds.py` counts code that
asks which kind it has instead, and expects none.

A new kind of window touches:

| file | what |
| --- | --- |
| topology/windows.py | its definition, a `WindowDefinition`, and the function that makes it |
| topology/__init__.py, anabranch/__init__.py | the public export |
| plan/operators/<kind>.py | its plan, its node, its contents, and what builds its nodes |
| plan/operators/kinds.py | one entry of the registry, and its contents in `AnyContents` |
| state/memory/<kind>.py, state/memory/kinds.py | its decoded state, and one entry of the registry |
| runtime/kinds.py | one entry of the registry: `WindowsWork`, or a work of its own |

Calendar windows (a month in a time zone) are such a definition without a new kind: they share panes
with other windows, so their `kind` is that of `Window` and they use its plan, state and work. What
they need beside topology/windows.py and the export is in the modules that do the arithmetic of
windows: plan/panes.py (the last window that takes a time, in NumPy and as SQL; ends that are not a
fixed length apart) and plan/consolidation.py (a family whose intervals differ in length).
"""
