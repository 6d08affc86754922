"""Studies that ship, and their profiles, read off without parsing them."""

import re
from functools import cache
from pathlib import Path

STUDIES = Path(__file__).parents[1] / "studies"


@cache
def profiles() -> dict[Path, tuple[str, ...]]:
    """Return the names of the profiles of each study.

    All processes collect tests of each, and YAML takes longer than all else of that.
    `schemas/test_shipped_studies.py` compares them with what YAML reads.
    """
    return {path: _names(path) for path in sorted(STUDIES.glob("**/*.yaml"))}


def _names(path: Path) -> tuple[str, ...]:
    _, _, after = path.read_text(encoding="utf-8").partition("\nprofiles:\n")
    block = re.split(r"^\w", after, maxsplit=1, flags=re.MULTILINE)[0]
    return tuple(re.findall(r"^  (\w[\w-]*):", block, re.MULTILINE))
