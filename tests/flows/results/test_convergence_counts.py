"""Verdicts of a stage's estimates, counted."""

from collections import Counter
from dataclasses import replace
from unittest import mock

import curvflow
from curvflow.flows.results.convergence_counts import unconverged_of
from curvflow.stores.local import LocalStore

STUDY = """
study: flagged
axes: {seed: 3}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: mlp, hidden: [2]}, seed: "${seed}",
        rule: {rule: sgd, lr: 0.1}, epochs: 1}
  sure: {use: probe.eigenvalues, weights: fit, k: 1, max_iterations: 400}
  short: {use: probe.eigenvalues, weights: fit, k: 1, method: power, max_iterations: 2,
          tol: 1.0e-13, oversampling: 0}
"""


def test_flags_are_counted_node_by_node_and_equal_ones_are_read_once(tmp_path):
    path = tmp_path / "flagged.yaml"
    path.write_text(STUDY)
    results = curvflow.run(path)
    with mock.patch.object(
        LocalStore,
        "read_together",
        autospec=True,
        side_effect=LocalStore.read_together,
    ) as read:
        assert results.verdicts("sure") == {"converged": 3}
        assert results.verdicts("short") == {"unconverged": 3}
    assert [len(call.args[1]) for call in read.call_args_list] == [1, 1]
    assert results.verdicts("fit") == {}
    assert unconverged_of("short", results.verdicts("short")) == (
        "3 of 3 estimates of short unconverged"
    )


def test_removed_verdicts_are_in_no_count(tmp_path):
    path = tmp_path / "flagged.yaml"
    path.write_text(STUDY)
    results = curvflow.run(path)
    view = results.view("short")
    payloads = frozenset(str(receipt.payload) for receipt in view.receipts if receipt)
    with mock.patch.object(
        results, "view", return_value=replace(view, removed=payloads)
    ):
        assert results.verdicts("short") == Counter()
