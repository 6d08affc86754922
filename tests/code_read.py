"""The code of the kinds that most forks run, read before: each would parse it anew."""

from pathlib import Path

from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.plan.plan import make_plan
from curvflow.schemas.study.study import load_study
from curvflow.stores.memory import MemoryStore

STUDY = """
study: read
axes: {seed: 2}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [2]}, epochs: 1,
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}"}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: [fit, norms], over: seed}
  bars: {use: figure.bars, of: fit, y: final_train_loss, over: seed}
"""


def read_code() -> None:
    """Plan a study of these kinds, and take the fingerprints of their code."""
    study = load_study(STUDY, file="read.yaml")
    plan = make_plan(study, MemoryStore(), SourceFiles(Path()))
    plan.codes.read(plan.graph)
