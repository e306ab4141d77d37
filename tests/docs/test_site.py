"""The site builds from the pages as they are, without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import anabranch as ab
import anabranch.testing
import anabranch.workloads
from anabranch.metrics import METRICS
from anabranch.spark.settings import SETTINGS
from docs.site.pictures import PICTURES
from docs.site.sources import _elsewhere

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    found = subprocess.run(
        [*command, "-d", str(out / "doctrees"), str(DOCS), str(out / "html")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    return out / "html"


class Loaded(HTMLParser):
    """What a browser would load for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        wanted = {"script": "src", "img": "src", "link": "href", "iframe": "src"}.get(tag)
        if wanted and given.get(wanted):
            self.urls.append(str(given[wanted]))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_every_page_is_built_and_in_a_table_of_contents(site: Path) -> None:
    pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md")]
    assert len(pages) > 10
    missing = [str(page) for page in pages if not (site / page.with_suffix(".html")).exists()]
    assert missing == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = Loaded()
    for page in site.rglob("*.html"):
        loaded.feed(text_of(page))
    assert loaded.urls
    assert [url for url in loaded.urls if re.match(r"(https?:)?//", url)] == []


@pytest.mark.parametrize(
    ("page", "module"),
    [("api", ab), ("testing", anabranch.testing), ("workloads", anabranch.workloads)],
)
def test_the_reference_has_every_public_name(site: Path, page: str, module: object) -> None:
    name = module.__name__  # type: ignore[attr-defined]
    wanted = {f"{name}.{each}" for each in module.__all__}  # type: ignore[attr-defined]
    if module is ab:
        wanted -= {f"{name}.{each}" for each in _elsewhere(name)}
    found = set(re.findall(r'id="([\w.]+)"', text_of(site / "reference" / f"{page}.html")))
    assert wanted - found == set()


def test_every_figure_and_command_is_in_the_reference(site: Path) -> None:
    metrics = text_of(site / "reference" / "metrics.html")
    assert [each.name for each in METRICS if f">{each.name}<" not in metrics] == []
    commands = text_of(site / "reference" / "cli.html")
    for command in ("anabranch run", "anabranch bench windows", "anabranch chaos"):
        assert f"Usage: {command}" in commands


def test_every_setting_of_spark_is_in_the_reference(site: Path) -> None:
    page = text_of(site / "reference" / "settings.html")
    assert [each.name for each in SETTINGS if each.name not in page] == []


def test_mermaid_blocks_are_drawn(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        blocks = len(re.findall(r"^```mermaid$", text_of(page), re.MULTILINE))
        built = text_of(site / page.relative_to(DOCS).with_suffix(".html"))
        assert built.count("<svg") >= blocks, page
        assert "flowchart TD" not in built


def test_every_picture_is_shown_on_a_page(site: Path) -> None:
    shown = "".join(text_of(page) for page in DOCS.rglob("*.md"))
    for name, draw in PICTURES.items():
        assert f"```{{picture}} {name}\n" in shown
        title = f"<title>{draw().title}</title>"
        assert any(title in text_of(page) for page in site.rglob("*.html"))


def test_colours_exist_for_both_modes(site: Path) -> None:
    styles = text_of(site / "_static" / "pictures.css")
    assert 'html[data-theme="dark"]' in styles
    assert styles.count("--ab-ink:") == 2
