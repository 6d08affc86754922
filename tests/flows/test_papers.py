"""Studies of papers run, and grow by what is added to them."""

from pathlib import Path

import numpy as np
import pytest

import curvflow
from curvflow.flows.published_images.find import VARIABLE
from curvflow.schemas.options import RunOptions
from tests.flows.published_images import real

PAPERS = Path(__file__).parents[2] / "studies" / "papers"
HERE = RunOptions(workers=1)
SMALL = ["xor-tanh", "xor-relu", "xord-tanh", "xord-relu"]
RULES = 8


def smoke(name, tmp_path, overrides=()):
    text = (PAPERS / "jarvis-2021" / f"{name}.yaml").read_text("utf-8")
    path = tmp_path / "study.yaml"
    path.write_text(text)
    if "eigen:" in text:
        overrides = [*overrides, "stages.eigen.max_iterations=3"]
    return curvflow.run(
        path,
        store=str(tmp_path / "s"),
        profile="smoke",
        overrides=overrides,
        options=HERE,
    )


def assert_trained(results):
    assert results.run.failures == []
    assert results.run.counts["executed"]["fit"] == 2 * RULES
    fit = results["fit"]
    assert dict(fit.sizes)["rule"] == RULES
    loss = fit["train_loss"].values
    assert np.isfinite(loss).all()
    # The small regime begins on a plateau; all others learn at once.
    assert (loss[..., -1] < loss[..., 0]).mean() > 0.6


@pytest.mark.parametrize("name", SMALL)
def test_a_small_study_of_all_rules_runs(name, tmp_path):
    assert_trained(smoke(name, tmp_path))


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


@pytest.mark.images
def test_products_alone_find_the_eigenvalues_of_the_dense_matrix(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(real.folder("mnist")))
    results = smoke("power-method", tmp_path)
    assert results.run.failures == []
    exact = results["exact"]["eigenvalues"].values
    for name in ("power", "lanczos"):
        assert results[name]["converged"].values.all()
        np.testing.assert_allclose(results[name]["eigenvalues"], exact, rtol=1e-9)
