"""The watermark over several sources: the event time before which all rows count as seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.topology.graph import Source


def watermark_after(
    sources: Sequence[Source],
    seen: Mapping[str, int],
    silent_us: Mapping[str, int],
    watermark_us: int | None,
) -> int | None:
    """The watermark of the next step, which is never before the last one.

    It is the least of what each source has seen minus its delay. A source that has been silent for
    too long is not waited for, if there is another one. A source that has not been seen yet holds
    the watermark where it is.
    """
    silent = {
        each.name
        for each in sources
        if each.idle_us is not None and silent_us[each.name] > each.idle_us
    }
    waited_for = [each for each in sources if each.name not in silent] or list(sources)
    if any(each.name not in seen for each in waited_for):
        return watermark_us
    reached = min(seen[each.name] - each.delay_us for each in waited_for)
    return reached if watermark_us is None else max(watermark_us, reached)
