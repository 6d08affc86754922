"""A study grows by what is added to it."""

import numpy as np

import curvflow
from curvflow.schemas.options import RunOptions

HERE = RunOptions(workers=1)

GROWING = """
study: growing
axes:
  seed: 3
  rule:
    sgd: {rule: sgd, lr: 0.1}
    metric: {rule: metric, lr: 0.1, rate: 0.001}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [4]}, rule: "${rule}",
        seed: "${seed}", epochs: 3}
  trace: {use: probe.hessian_trace, weights: fit, num_probes: 2}
  table: {use: aggregate.summary, of: [fit, trace], over: seed}
"""


def test_a_rule_added_to_a_finished_study_is_all_that_is_computed(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(GROWING)
    first = curvflow.run(path, store=str(tmp_path / "s"), options=HERE)
    assert sum(first.run.counts["executed"].values()) == 1 + 6 + 6 + 2
    adam = "    adam: {rule: adam, lr: 0.01}\nstages:"
    path.write_text(GROWING.replace("stages:", adam))
    second = curvflow.run(path, store=str(tmp_path / "s"), options=HERE)
    executed = {stage: n for stage, n in second.run.counts["executed"].items() if n}
    assert executed == {"fit": 3, "trace": 3, "table": 1}
    np.testing.assert_array_equal(
        first["fit"]["final_train_loss"].values,
        second["fit"]["final_train_loss"].sel(rule=["sgd", "metric"]).values,
    )
