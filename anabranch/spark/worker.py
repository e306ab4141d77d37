"""What a Python worker of Spark does once, before its first task of ours."""

from functools import cache
from gc import freeze


@cache
def settle() -> None:
    """Takes all that is loaded out of the garbage collector's sight.

    Workers collect garbage after every task, and went through all modules each time: some 50 ms of a core a task.
    """
    freeze()
