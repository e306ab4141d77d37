"""`scripts/check-text` in small trees: what it finds, and what it lets pass."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "check-text"
RULES = """
clean = ["README.md", "docs", "package"]
short = ["README.md", "docs/how-to"]
[words]
'worn' = "used"
'(cups?|plates?) an? (day|table)' = "per"
"""
THIRTY = " ".join(["word"] * 30)


def findings(tmp_path: Path, **files: str) -> list[str]:
    """What the script prints for a tree with these files; `__` in a name is a folder."""
    for name, text in {"docs__words.toml": RULES, **files}.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert found.stderr == ""
    assert found.returncode == bool(found.stdout)
    return found.stdout.splitlines()


def test_words_in_pages_are_found_with_line_and_advice(tmp_path: Path) -> None:
    page = "# Title\n\nOne plate a table is Worn.\n"
    assert findings(tmp_path, **{"docs__page.md": page}) == [
        "docs/page.md:3: 'Worn': write used",
        "docs/page.md:3: 'plate a table': write per",
    ]


def test_code_and_parts_of_words_are_let_pass(tmp_path: Path) -> None:
    page = "It is unworn, `worn` and careworn.\n\n```python\nworn = 'cups a day'\n```\n"
    assert findings(tmp_path, **{"docs__page.md": page}) == []


def test_comments_docstrings_and_messages_are_checked_but_not_names(tmp_path: Path) -> None:
    module = '"""It is worn."""\n\nworn = 1  # worn\n\n\ndef f(worn):\n    raise ValueError(f"worn {worn}")\n'
    found = findings(tmp_path, package__module=module, **{"package__module.py": module})
    assert [line.split(":")[1] for line in found] == ["1", "3", "3", "7", "7"]
    names = "worn = 1\n\n\ndef f(worn):\n    return worn\n"
    assert findings(tmp_path, **{"package__module.py": names}) == []


def test_long_lines_are_found_outside_of_tables_and_code(tmp_path: Path) -> None:
    line = "x" * 111
    page = f"{line}\n\n| {line} |\n\n```text\n{line}\n```\n{'y' * 110}\n"
    assert findings(tmp_path, **{"docs__page.md": page}) == [
        "docs/page.md:1: 111 characters: at most 110"
    ]


def test_long_sentences_are_found_where_they_must_be_short(tmp_path: Path) -> None:
    lines = THIRTY.replace("word word word word word", "word word word word\nword")
    page = f"A title\n\nIt {lines}. Then {THIRTY[:60]}.\n\n- Good: {THIRTY[:40]}\n- {lines} more\n"
    found = findings(tmp_path, **{"README.md": page, "docs__other.md": page})
    assert [line.partition(" ")[0] for line in found] == ["README.md:3:", "README.md:12:"]
    assert "a sentence of 31 words: at most 30" in found[0]


def test_a_cell_of_a_table_is_a_sentence(tmp_path: Path) -> None:
    page = f"| a | b |\n| --- | --- |\n| {THIRTY} | {THIRTY} |\n| {THIRTY} word | b |\n"
    assert findings(tmp_path, **{"docs__how-to__x.md": page}) == [
        "docs/how-to/x.md:4: a sentence of 31 words: at most 30"
    ]


def test_paths_that_are_not_listed_are_not_checked(tmp_path: Path) -> None:
    assert findings(tmp_path, **{"other__page.md": "It is worn.\n"}) == []


@pytest.mark.parametrize(
    "text",
    [  # set as code, so that this file passes the check itself
        "`a value a key`",
        "`one record a step`",
        "`20 us a row`",
        "`the reason is told`",
        "`maps behind the window`",
        "`rows lie in shards`",
        "`needs two streams; 5 is none`",
        "`is there twice`",
        "`is not a text`",
        "`failed 1 times`",
        "`goes by what is measured`",
        "`was in vain`",
        "`read where they lie`",
    ],
)
def test_the_rules_of_this_project_know_its_old_turns_of_phrase(tmp_path: Path, text: str) -> None:
    given = tomllib.loads((ROOT / "docs" / "words.toml").read_text(encoding="utf-8"))
    words = "\n".join(f"'{word}' = '''{advice}'''" for word, advice in given["words"].items())
    rules = f'clean = ["page.md"]\nshort = []\n[words]\n{words}\n'
    assert len(findings(tmp_path, **{"docs__words.toml": rules, "page.md": f"{text[1:-1]}\n"})) == 1


def test_the_texts_that_are_called_clean_are_clean() -> None:
    found = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""
    assert found.returncode == 0
