"""The pictures of the docs, each from what the code itself computes.

A page shows one with a block ```{picture} panes. To look at all of them as files:
`python -m docs.site.pictures OUT`.
"""

from docs.site.pictures.panes import draw_panes
from docs.site.pictures.scaling import draw_scaling
from docs.site.pictures.shards import draw_shards
from docs.site.pictures.step import draw_step

PICTURES = {
    "panes": draw_panes,
    "scaling": draw_scaling,
    "shards": draw_shards,
    "step": draw_step,
}

__all__ = ["PICTURES"]
