"""One module per kind of operator: what it keeps, what it emits, and how it describes itself.

A kind has three parts. An `OperatorPlan` is what a slot task needs, and is sent to it. A `Node`
stays with the driver: expressions, explain, what a checkpoint notes and may change. A `Contents` is
what the note of its state says. Other code calls their methods, and never asks which kind it has;
`tests/test_kinds.py` checks that.

A new kind of window touches:

| file | what |
| --- | --- |
| topology/windows.py | its definition, a `WindowDefinition`, and the function that makes it |
| topology/__init__.py, anabranch/__init__.py | the public export |
| plan/operators/<kind>.py | its plan, its node, its contents, and what builds its nodes |
| plan/operators/kinds.py | one entry of the registry, and its contents in `AnyContents` |
| state/memory/<kind>.py, state/memory/kinds.py | its decoded state, and one entry of the registry |
| runtime/kinds.py | one entry of the registry: `WindowsWork`, or a work of its own |

A window that shares panes with others is not a new kind, but another `AlignedWindow`
(topology/windows.py). It says where its windows start and end, and uses the plan, the state and the
work of all of them. Calendar windows (topology/calendar.py) are one. Besides the export they need
an entry in plan/operators/noted_windows.py.
"""
