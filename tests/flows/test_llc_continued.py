"""Draws of a learning coefficient asked for anew: what is executed, and how."""

import numpy as np

from curvflow.stores.memory import MemoryStore
from tests.flows.toys import run

STUDY = """
study: drawn
axes: {seed: 2}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: mlp, hidden: [2], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 5, dtype: float64}
  norms: {use: probe.norms, weights: fit}
  llc: {use: probe.llc, weights: fit, num_chains: 2, num_draws: 10, seed: "${seed}"}
  table: {use: aggregate.summary, of: llc, over: seed}
"""


def executed(store, *overrides):
    """Run, and return how many nodes of each stage were computed."""
    return run(store, *overrides, text=STUDY).record.counts["executed"]


def drawn(store, num_draws):
    """Return what is stored of chains of so many draws, by their seed's network."""
    by_loss = {}
    for receipt in store.index().receipts.values():
        if receipt.stage == "llc":
            arrays = store.fetch(receipt, list(receipt.parts))
            if arrays["loss_trace"].shape[1] == num_draws:
                by_loss[float(arrays["init_loss"])] = arrays
    return by_loss


ALL = {"xor": 1, "fit": 2, "norms": 2, "llc": 2, "table": 1}
DRAWN = {"xor": 0, "fit": 0, "norms": 0, "llc": 2, "table": 1}


def test_more_draws_go_on_from_those_that_are_there(store):
    assert executed(store) == ALL
    assert executed(store, "stages.llc.num_draws=25") == DRAWN
    few, many = drawn(store, 10), drawn(store, 25)
    assert len(few) == len(many) == 2
    for network, shorter in few.items():
        longer = many[network]
        np.testing.assert_array_equal(
            longer["loss_trace"][:, :10], shorter["loss_trace"]
        )
        # 15 draws of 2 chains, twenty steps apart, and nothing but them.
        more = longer["gradient_equivalents"] - shorter["gradient_equivalents"]
        assert float(more) == 15 * 20 * 2
        assert longer["calibration_equivalents"] == shorter["calibration_equivalents"]
    at_once = MemoryStore()
    assert executed(at_once, "stages.llc.num_draws=25") == ALL
    for network, whole in drawn(at_once, 25).items():
        for name in ("loss_trace", "llc_mean", "llc_sem", "acceptance"):
            np.testing.assert_array_equal(many[network][name], whole[name])


def test_another_temperature_executes_the_draws_and_what_stands_on_them(store):
    assert executed(store) == ALL
    assert executed(store, "stages.llc.nbeta=3") == DRAWN
    assert executed(store) == dict.fromkeys(ALL, 0)
