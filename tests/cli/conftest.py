"""The command line in this process, and a study that runs in a moment."""

import sys
from dataclasses import dataclass

import pytest

from curvflow.cli.app import main

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
    """What a command answered."""

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
