"""How Sphinx builds the site: `make docs` writes it to out/docs/html, without network."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import anabranch  # noqa: E402 - found by the path above

project = "Anabranch"
release = version = anabranch.__version__
project_copyright = "the authors of Anabranch, Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "docs.site.extension"]
exclude_patterns = ["site"]  # the code that the site is made with

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # a signature with all types is longer than the text below it
autodoc_default_options = {"members": True}

html_theme = "pydata_sphinx_theme"
html_title = "Anabranch"
html_static_path = ["_static"]
html_css_files = ["anabranch.css"]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"index": []}
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
