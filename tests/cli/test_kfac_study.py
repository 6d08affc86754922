"""A study of K-FAC from its file to its results."""

import curvflow as library

STUDY = """\
study: factors
axes:
  seed: 2
  rule:
    kfac: {preset: botev-2020/kfac, damping: 0.1}
    martens: {preset: martens-2015/kfac, damping: 1.0, preconditioner_damping: 1.0}
    sgd: {rule: sgd, lr: 0.1}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [6]}, rule: "${rule}",
        seed: "${seed}", epochs: 12}
"""


def test_a_study_of_kfac_trains_and_records_its_dampings(
    curvflow, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    said = curvflow("run", "study.yaml")
    assert said.code == 0, said.err
    results = library.open("study.yaml")["fit"]
    loss, damping = results["train_loss"], results["damping"]
    assert (loss.sel(rule="kfac")[..., -1] < loss.sel(rule="sgd")[..., -1]).all()
    assert (damping.sel(rule="kfac")[..., -1] < 0.1).all()
    assert damping.sel(rule="sgd").isnull().all()
    assert results["chosen_momentum"].sel(rule="martens").notnull().any()
