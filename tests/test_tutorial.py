"""The tutorial, followed word by word but for the installation."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.cli.conftest import curvflow
from tests.test_docs import FLAGS, ROOT, added

__all__ = ["curvflow"]  # the fixture: the command line in this process
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


class Reader:
    """Who writes what the page says into files, and enters its commands.

    Attributes:
        run: what a command is entered by.
        done: commands entered.
        said: what the last one answered.
    """

    def __init__(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.go = run, monkeypatch.chdir
        self.study, self.done, self.said = Path(), 0, ""

    def follow(self, language: str, text: str) -> None:
        """Do what one block says."""
        name = re.match(r"# ([\w.]+)\n", text)
        if language == "python" and name:
            Path(name[1]).write_text(text, encoding="utf-8")
        elif language == "yaml":
            self.write(text, name)
        elif language == "sh":
            for line in text.splitlines():
                self.enter(shlex.split(line))

    def write(self, text: str, name: re.Match[str] | None) -> None:
        """Write a study, or add to the last one."""
        content = YAML(typ="safe").load(text)
        if name:
            self.study = Path(name[1])
        else:
            content = added(YAML(typ="safe").load(self.study), content)
        YAML(typ="safe").dump(content, self.study)

    def enter(self, words: list[str]) -> None:
        """Enter a command; what installs, and looks at the machine, is left out."""
        if words[0] == "cd":
            self.go(words[1])
        elif words[0] == "curvflow" and words[1] != "doctor":
            found = self.run(*words[1:])
            assert found.code == 0, f"{words}\n{found.err}"
            self.done, self.said = self.done + 1, found.out


@pytest.mark.slow
@pytest.mark.pages
def test_the_tutorial_can_be_followed_word_by_word(tmp_path, monkeypatch, curvflow):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "first")
    reader = Reader(curvflow, monkeypatch)
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", PAGE, FLAGS):
        reader.follow(language, text)
    sys.modules.pop("spirals", None)
    assert reader.done >= 10
    # The last command shows what the text reads off it: of ten pairs none is above.
    rows = [x for x in reader.said.splitlines() if x.startswith("trace: 32 - 8")]
    assert rows[-1].split()[-1] == "0"
    for figure in ("my-study/sharpness.png", "spirals/bars.png"):
        assert (Path("results") / figure).stat().st_size > 10_000
