"""`lab all`, the page it writes, and plots.

Every id of the papers' list is there, and verdicts follow from what is printed.
"""

from __future__ import annotations

import json
import operator
import sys
from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.lab.claims import Claim, as_facts
from anabranch.lab.dabs import osg
from anabranch.lab.elasticutor import experiment as elasticutor
from anabranch.lab.enorm import migration as enorm_migration
from anabranch.lab.everything import LABS, TimedReport, as_page
from anabranch.lab.report import LabReport

PAGE = Path(__file__).parent.parent.parent / "docs" / "research" / "papers.md"
IDS = {
    "enorm-consolidation": "enorm-7",
    "enorm-migration": "enorm-10 enorm-11 enorm-12 enorm-13",
    "enorm-fusion": "enorm-14 enorm-15",
    "enorm-throughput": "enorm-9 enorm-16",
    "cbp": "cbp-3a cbp-3b cbp-4 cbp-5 cbp-t1a cbp-t1b",
    "elasticutor": "elasticutor-6 elasticutor-7 elasticutor-9 elasticutor-10 elasticutor-13 "
    "elasticutor-16 elasticutor-t2 elasticutor-t3",
    "dabs": "dabs-12 dabs-13 dabs-14 dabs-15 dabs-16 dabs-17",
    "osg": "osg-bound osg-rr",
}


def run_lab(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["lab", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_page_has_every_claim_of_the_papers_list_that_was_run() -> None:
    assert set(IDS) == set(LABS)
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    claims = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    for lab, ids in IDS.items():
        assert any(line.startswith(f"- `{lab}`: ") for line in lines), lab
        if f"- `{lab}`: not run for this page" not in lines:
            missing = [
                each
                for each in ids.split()
                if not any(c == each or c.startswith(f"{each}-") for c in claims)
            ]
            assert not missing
    assert (
        sum(line.endswith("not run for this page") for line in lines) <= 1
    )  # the one that needs Spark


def test_the_pages_verdicts_follow_from_its_figures() -> None:
    signs = {
        "<=": operator.le,
        ">=": operator.ge,
        "<": operator.lt,
        ">": operator.gt,
        "==": operator.eq,
    }
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("| ") or line.startswith(("| claim", "| ---")):
            continue
        _, _, *rest = line.strip("| ").split(" | ")
        paper, ours, test, holds = rest[-4:]
        sign, *factor = test.strip("`").split()
        limit = float(paper.replace(",", "")) * (float(factor[0]) if len(factor) == 3 else 1)
        value = float(ours.replace(",", ""))
        if abs(value - limit) > 1e-3 * abs(limit):  # figures are printed with four digits
            assert signs[sign](value, limit) == (holds == "yes"), line


def test_a_page_says_why_a_claim_does_not_hold() -> None:
    claims = [
        Claim(id="osg-rr", what="x", paper=1, ours=2, test="< paper", why="it is slow"),
        Claim(id="dabs-12", what="y", paper=1, ours=0.5, test="< paper"),
    ]
    page = as_page([TimedReport(LabReport(lab="osg", claims=claims, settings={"seed": 3}), 1.0)], 3)
    assert "1 of 2 claims hold" in page
    assert "- **osg-rr**: it is slow" in page
    assert "| dabs-12 | y | 1 | 0.5 | `< paper` | yes |" in page


def test_some_experiments_run_together_into_one_object(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "papers.md"
    code, out, _ = run_lab(
        capsys, "all", "--only", "enorm-consolidation", "--out", str(page), "--json"
    )
    facts = json.loads(out.splitlines()[-1])
    assert code == 0
    assert facts["lab"] == "all"
    assert {
        "id": "enorm-7",
        "what": "merges per hour, planned",
        "paper": 86,
        "ours": 86,
        "test": "== paper",
        "why": "",
        "note": "",
        "holds": True,
    } in facts["claims"]
    assert "enorm-7-naive" in page.read_text(encoding="utf-8")


def test_mistakes_are_answered_in_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run_lab(capsys, "all", "--only", "dbas")
    assert code == 2
    assert "dbas" in err
    assert "dabs" in err
    assert run_lab(capsys, "osg", "--plot", "x.bmp")[0] == 2
    code, _, err = run_lab(capsys, "osg", "--plot", str(tmp_path / "no" / "x.png"))
    assert code == 2
    assert "does not exist" in err


def test_without_matplotlib_a_plot_is_refused_with_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run_lab(capsys, "osg", "--plot", str(tmp_path / "x.png"))
    assert code == 2
    assert "anabranch[lab]" in err


def test_figures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from anabranch.lab.report import draw

    charts = enorm_migration.experiment(enorm_migration.MigrationSetting(rises=1, shards=12)).charts
    file = tmp_path / "figures.svg"
    draw(charts, str(file))
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    assert len(text) > 10_000


def test_claims_become_facts_with_verdicts() -> None:
    facts = as_facts(osg.experiment(osg.OsgSetting(rows=2000, tries=3, streams=1)).claims)
    assert json.loads(json.dumps(facts)) == facts
    assert {"id", "what", "paper", "ours", "test", "holds", "why", "note"} == set(facts[0])
    assert elasticutor.ElasticutorSetting().theta == 1.2
