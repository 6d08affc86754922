"""How many nodes of a stage are computed together."""

from curvflow.flows.graph.open_study import open_study
from curvflow.flows.run.run import run_study
from curvflow.schemas.options import RunOptions

STUDY = """
study: widths
axes:
  seed: 8
stages:
  data: {use: data.sinusoid, num_samples: 2000, seed: %s}
  fit: {use: train, data: data, model: {kind: linear}, rule: {rule: sgd, lr: 0.0001},
        seed: "${seed}", epochs: 1, batch_size: 500}
  norms: {use: probe.norms, weights: fit}
"""
# The data take 6 MB as stored and as loaded, all else of a network 3 MB.
ROOM = RunOptions(workers=1, tile_bytes=40_000_000)


def widths(tmp_path, data_seed):
    (tmp_path / "study.yaml").write_text(STUDY % data_seed)
    opened = open_study(tmp_path / "study.yaml", store="memory:")
    report = run_study(opened.study, opened.store, opened.files, options=ROOM)
    assert report.record.failures == []
    return {n.receipt.width for n in report.plan.graph if n.stage == "fit"}


def test_data_that_a_stage_has_in_common_are_counted_once(tmp_path):
    assert widths(tmp_path, "0") == {8}


def test_data_of_each_nodes_own_are_counted_for_each(tmp_path):
    assert widths(tmp_path, '"${seed}"') == {4}
