"""Why a job failed, in one line: Spark's own texts are stack traces of two languages."""

from __future__ import annotations

import re


def cause_of(error: BaseException) -> tuple[str, bool]:
    """What went wrong in a job, in one line, and whether trying again cannot help."""
    text = str(error)
    ours = re.findall(r"anabranch\.(?:errors|faults)\.(\w+): (.*)", text)
    if ours:
        return ours[-1][1].strip(), ours[-1][0] in {"StateFullError", "StepError"}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    return (raised or lines or [type(error).__name__])[0][:500], False
