"""Loads a Python file and finds its topology.

An error in the file is reported in one line, with the file and the line number.
"""

from __future__ import annotations

import os
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from anabranch.errors import AnabranchError
from anabranch.spark.api.topology import Topology

_MODULE = "anabranch_file"


class MistakeError(AnabranchError):
    """A mistake that the user can correct at the command line.

    The message says all that is needed.
    """


def load_topology(path: Path) -> Topology:
    """The topology that a file defines: its variable `app`, or the only Topology in it."""
    found = {name: value for name, value in _run(path).items() if isinstance(value, Topology)}
    if "app" in found:
        return found["app"]
    distinct = {id(value): value for value in found.values()}
    if not distinct:
        raise MistakeError(
            f"{path} defines no topology; it needs a variable such as: app = "
            f"ab.Topology({path.stem!r})"
        )
    if len(distinct) > 1:
        raise MistakeError(
            f"{path} defines {len(distinct)} topologies ({', '.join(found)}); name the one to run "
            "`app`"
        )
    return next(iter(distinct.values()))


def error_place(error: BaseException, path: Path) -> str:
    """`FILE:LINE: ` for the line in a file where an error comes from, else empty.

    Causes of the error and errors in workers count too.
    """
    full = str(path.absolute())
    for each in _causes(error):
        line = None
        trace = each.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == full:
                line = trace.tb_lineno
            trace = trace.tb_next
        if isinstance(each, SyntaxError) and each.filename == full:
            line = each.lineno
        reported = re.findall(rf'File "{re.escape(full)}", line (\d+)', str(each))
        if line is not None or reported:
            return f"{path}:{line if line is not None else reported[-1]}: "
    return ""


def error_text(error: BaseException) -> str:
    """An error in one line: its message, with its type if it is not one of Anabranch's."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, SyntaxError):
        text = error.msg
    if isinstance(error, AnabranchError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _run(path: Path) -> dict[str, object]:
    """The variables of a file after it ran.

    It runs like a script, except that `__name__` is not `__main__`.
    """
    try:
        source = path.read_bytes()
    except IsADirectoryError:
        raise MistakeError(f"{path} is a directory, not a Python file") from None
    except OSError as error:
        raise MistakeError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    module = types.ModuleType(_MODULE)
    module.__file__ = str(path.absolute())
    sys.path.insert(0, str(path.absolute().parent))
    # Dataclasses need their module while they are created. Afterwards it must be gone, so that
    # functions are sent to workers by value: a worker that imports the file would start Spark
    # again.
    sys.modules[_MODULE] = module
    try:
        code = compile(source, module.__file__, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102
    except (Exception, SystemExit) as error:
        raise MistakeError(
            f"{error_place(error, path) or f'{path}: '}{error_text(error)}"
        ) from error
    finally:
        del sys.modules[_MODULE]
    return vars(module)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
