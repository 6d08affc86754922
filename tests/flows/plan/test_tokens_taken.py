"""Labels of tokens given to a model of numbers are refused while planning."""

import numpy as np
import pytest

from curvflow.errors import StudyError
from curvflow.flows.plan.plan import make_plan
from tests.flows.toys import opened

STUDY = """\
study: tokens
stages:
  data: {{use: {data}}}
  fit: {{use: train, data: data, model: {{kind: {model}}}, epochs: 1,
        rule: {{rule: sgd, lr: 0.1}}}}
"""
MODELS = ("mlp, hidden: [3]", "linear", "logistic", "autoencoder, hidden: [3]")
SOURCES = (
    "data.array, path: whole.npz",
    "data.array, path: inputs.npy, targets_path: targets.npy",
    "data.array, path: numbers.npz",
    "data.text, path: some.txt, length: 6",
)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    tokens, labels = rng.integers(0, 5, (2, 40, 6))
    np.savez(tmp_path / "whole.npz", inputs=tokens, targets=labels)
    np.savez(tmp_path / "numbers.npz", inputs=rng.random((40, 6)), targets=labels)
    np.save(tmp_path / "inputs.npy", tokens)
    np.save(tmp_path / "targets.npy", labels)
    (tmp_path / "some.txt").write_text("a few letters " * 20)
    return tmp_path


def planned(store, folder, data, model):
    given = opened(store, folder=folder, text=STUDY.format(data=data, model=model))
    make_plan(given.study, given.store, given.files)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("data", SOURCES)
def test_they_are_refused_where_the_model_is_written(store, folder, data, model):
    with pytest.raises(StudyError) as caught:
        planned(store, folder, data, model)
    message = str(caught.value)
    place, _, said = message.partition(": stages.fit.model: ")
    assert place.endswith(":4:40")
    name = model.partition(",")[0]
    assert f"the labels of 6 tokens a sample of 'data', got {name}. Take" in said
    assert "\n" not in message


@pytest.mark.parametrize("data", [SOURCES[0], SOURCES[3]])
def test_a_model_of_sequences_takes_them(store, folder, data):
    planned(store, folder, data, "lstm, hidden: 3")
