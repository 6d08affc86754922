"""The studies shown in README and docs are studies."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from curvflow.flows.expand import expand
from curvflow.flows.files import SourceFiles
from curvflow.schemas.study import load_study

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def added(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Add a further example of a page to the page's study, entry by entry."""
    merged = dict(base)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = {**base[key], **value} if both else value
    return merged


def examples() -> Iterator[Any]:
    for page in PAGES:
        base: dict[str, Any] = {}
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(
            r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE
        ):
            line = text.count("\n", 0, found.start()) + 1
            example = YAML(typ="safe").load(found[1])
            base = base or example
            study = example if "study" in example else added(base, example)
            yield pytest.param(study, id=f"{page.stem}-{line}")


@pytest.mark.parametrize("study", list(examples()))
def test_every_study_shown_can_be_planned(study, tmp_path):
    (tmp_path / "measured.npz").write_bytes(b"any content")
    path = tmp_path / "study.yaml"
    YAML(typ="safe").dump(study, path)
    loaded = load_study(path.read_text(encoding="utf-8"), file="study.yaml")
    assert len(list(expand(loaded, SourceFiles(tmp_path)))) >= len(loaded.stages)


def test_docs_show_studies():
    assert len(list(examples())) >= 8
