"""What Sphinx learns from us: blocks in pages that are filled from code when the site is built.

{api} anabranch.testing: the public names of a module with their docstrings.
{commands}: every command with its --help.
{metrics}: every figure of a step.
{settings} anabranch.Elastic: the fields of a class, with default and meaning.
{spark-settings}: every setting of Spark that sessions and runs have from us.
{pages}: a list of all pages in the folder, then those that it names.
{picture} panes: one of docs/site/pictures; the text in the block is its caption.
mermaid: drawn as docs/site/mermaid.py reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree
from sphinx.util.docutils import SphinxDirective

from anabranch.metrics import as_table as metrics_table
from anabranch.spark.settings import as_table as spark_settings_table
from docs.site.docstrings import as_rst
from docs.site.flowchart import draw_chart
from docs.site.mermaid import Chart, MermaidError, read
from docs.site.pictures import PICTURES
from docs.site.sequence import draw_sequence
from docs.site.sources import api_page, commands_page, settings_page
from docs.site.svg import stylesheet


class _Made(SphinxDirective):
    """A block whose Markdown is made by a function of its argument."""

    optional_arguments = 1
    make: Callable[..., str]

    def run(self) -> list[nodes.Node]:
        text = type(self).make(*self.arguments)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def _made_by(make: Callable[..., str]) -> type[_Made]:
    return type(make.__name__, (_Made,), {"make": staticmethod(make)})


class _Pages(TocTree):
    """A toctree of the folder: a page is listed once it is there."""

    def run(self) -> list[nodes.Node]:
        here = self.env.docname.rpartition("/")[0]
        beside = sorted(
            name
            for name in self.env.found_docs
            if name.rpartition("/")[0] == here and not name.endswith("index")
        )
        self.content = StringList([*(f"/{name}" for name in beside), *self.content])
        self.options.setdefault("maxdepth", 1)
        return list(super().run())


class _Mermaid(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            found = read("\n".join(self.content))
        except MermaidError as error:
            raise self.error(str(error)) from error
        draw = draw_chart if isinstance(found, Chart) else draw_sequence
        return [figure(draw(found, "Diagram"))]  # type: ignore[arg-type, operator]


class _Picture(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        if name not in PICTURES:
            raise self.error(f"picture {name!r} is unknown; valid: {', '.join(PICTURES)}")
        return [figure(PICTURES[name]().svg(), " ".join(self.content))]


def figure(svg: str, caption: str = "") -> nodes.Node:
    """A picture in the page itself, so that the theme's mode chooses its colours."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return nodes.raw("", f'<figure class="picture">{svg}{below}</figure>', format="html")


def _write_colours(app: Sphinx, *_: object) -> None:
    path = Path(app.outdir) / "_static" / "pictures.css"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stylesheet(), encoding="utf-8")


def _convert(*event: Any) -> None:
    """Autodoc's event: the lines of a docstring are its last argument, and changed in place."""
    lines = event[-1]
    lines[:] = as_rst(lines)


def _hide_constructor(*event: Any) -> tuple[str, str] | None:
    """Autodoc's event: streams and runs come from calls, users do not make them."""
    _, what, name, value, *_ = event
    made = getattr(value, "__module__", "").startswith("anabranch.spark.api")
    return ("", "") if what == "class" and made and not name.endswith(".Topology") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls to load this extension."""
    app.add_directive("mermaid", _Mermaid)
    app.add_directive("pages", _Pages)
    app.add_directive("picture", _Picture)
    app.add_css_file("pictures.css")
    app.connect("build-finished", _write_colours)
    app.add_directive("api", _made_by(api_page))
    app.add_directive("commands", _made_by(commands_page))
    app.add_directive("metrics", _made_by(metrics_table))
    app.add_directive("settings", _made_by(settings_page))
    app.add_directive("spark-settings", _made_by(spark_settings_table))
    app.connect("autodoc-process-docstring", _convert)
    app.connect("autodoc-process-signature", _hide_constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
