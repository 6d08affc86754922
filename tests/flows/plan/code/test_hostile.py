"""Edits that an adversary would try: each moves a result, and has to be noticed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.plan.code.grammar import ACTING, OTHER, Case

TEXT = Path(__file__).with_suffix("").with_name("hostile.txt").read_text("utf-8")


def cases() -> Iterator[Case]:
    """Read the cases: `==` a title, `--` a file, `~~` and `~>` its edit."""
    for block in TEXT.split("\n== ")[1:]:
        title, *lines = block.splitlines()
        old, new = "V = 1", "V = 2"
        files = {"far.py": ["V = 1"], "other.py": [OTHER], "acting.py": [ACTING]}
        for line in lines:
            if line.startswith("-- "):
                current = files[line[3:]] = []
            elif line.startswith("~~ "):
                old = line[3:].replace("\\n", "\n")
            elif line.startswith("~> "):
                new = line[3:].replace("\\n", "\n")
            else:
                current.append(line)
        before = {name: "\n".join(text) + "\n" for name, text in files.items()}
        (home,) = [name for name, text in before.items() if old in text][:1]
        after = before | {home: before[home].replace(old, new, 1)}
        yield Case((title,), before, after)


@pytest.mark.processes
@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.forms[0])
def test_a_hostile_edit_is_noticed(judge, case):
    assert judge(case) == ["noticed"]
