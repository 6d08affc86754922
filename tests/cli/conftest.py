"""The command line in this process, and a study that runs in a moment.

What commands leave behind is made once in a process and copied, store and results, for
each test that starts from it. Figures are placed, not drawn.
"""

import shutil
import sys
from dataclasses import dataclass

import pytest

from curvflow.cli.app import main
from tests.pictures import _figures_are_placed_only

__all__ = ["_figures_are_placed_only"]

STUDY = """\
study: tiny
axes:
  seed: 2
  rule:
    sgd: {rule: sgd, lr: 0.1}
    adam: {rule: adam, lr: 0.01}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, rule: "${rule}",
        seed: "${seed}", epochs: 4, checkpoints: {every: 2}}
  trace: {use: probe.hessian_trace, weights: fit, num_probes: 4}
  eigen: {use: probe.eigenvalues, weights: fit, k: 2}
  table: {use: aggregate.summary, of: [fit, trace, eigen], over: seed}
  loss: {use: figure.lines, of: fit, y: train_loss, label: rule, over: seed}
profiles:
  more: {axes.seed: 3}
"""


@dataclass
class Said:
    """Answer of a command: code, stdout and stderr."""

    code: int
    out: str
    err: str


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Write the tiny study and go to its folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def curvflow(monkeypatch, capsys):
    """Return a function that runs `curvflow ARGUMENTS`."""

    def run(*arguments) -> Said:
        monkeypatch.setattr(sys, "argv", ["curvflow", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return Said(int(stopped.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def left_behind():
    """Folders as commands left them, by study and commands."""
    return {}


@pytest.fixture
def after(curvflow, left_behind, tmp_path_factory):
    """Return a function that does commands on a study in a folder of its own.

    The second time it copies the folder as it was after the first.
    """

    def done(study, *commands):
        key = study.name, study.read_text(), commands
        if key in left_behind:
            shutil.copytree(left_behind[key], study.parent, dirs_exist_ok=True)
            return study
        for name, *arguments in commands:
            assert curvflow(name, study, *arguments).code == 0
        folder = tmp_path_factory.mktemp("left")
        shutil.copytree(study.parent, folder, dirs_exist_ok=True)
        left_behind[key] = folder
        return study

    return done
