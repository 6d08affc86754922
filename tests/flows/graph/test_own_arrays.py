"""The user's arrays are held against networks and losses while planning."""

import random

import numpy as np
import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.plan.plan import make_plan
from tests.flows.toys import opened

STUDY = """
study: arrays
axes: {}
stages:
  thin: {use: data.array, path: thin.npz}
  wide: {use: data.array, path: wide.npz}
  values: {use: data.array, path: values.npz}
  rows: {use: data.modify, data: wide, flatten: true}
  fit: {use: train, data: thin, model: {kind: mlp, hidden: [3]}, epochs: 1,
        rule: {rule: sgd, lr: 0.1}}
"""
TRAINING = "model: {kind: linear}, epochs: 1, rule: {rule: sgd, lr: 0.1}"


@pytest.fixture
def folder(tmp_path):
    def write(name, width, targets):
        inputs = np.arange(6.0 * width).reshape(6, width)
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, targets=targets)

    labels = np.arange(6) % 3
    write("thin", 4, labels)
    write("wide", 7, labels)
    write("values", 4, np.arange(6.0))
    return tmp_path


def planned(store, folder, line, *others):
    text = f"{STUDY}  asked: {{use: {line}}}\n"
    for number, other in enumerate(others):
        text += f"  asked{number}: {{use: {other}}}\n"
    opened_study = opened(store, text=text, folder=folder)
    return make_plan(opened_study.study, opened_study.store, opened_study.files)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "probe.llc, weights: fit, data: wide",
            "data: expected data with 4 inputs, as 'fit' was trained on, got 'wide' "
            "with 7 inputs. Give data like 'thin', or train a network on 'wide'.",
        ),
        (
            "probe.trace, weights: fit, data: rows",
            "data: expected data with 4 inputs, as 'fit' was trained on, got 'rows' "
            "with 7 inputs. Give data like 'thin', or train a network on 'rows'.",
        ),
        (
            "probe.llc, weights: fit, data: values",
            "data: expected data with labels as targets, as 'fit' was trained on, got "
            "'values' with values. Give data like 'thin', or train a network on "
            "'values'.",
        ),
        (
            f"train, data: thin, loss: mse, {TRAINING}",
            "loss: expected cross_entropy for the labels of 'thin', got mse. Take "
            "cross_entropy or auto, or data.modify with labels: one_hot.",
        ),
        (
            f"train, data: values, loss: cross_entropy, {TRAINING}",
            "loss: expected mse or sse for the values of 'values', got cross_entropy. "
            "Take mse, sse or auto, or data with labels.",
        ),
        (
            "probe.eigenvalues, weights: fit, k: 28",
            "k: expected at most the 27 parameters of 'fit', got 28. Lower it.",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(store, folder, line, message):
    with pytest.raises(StudyError) as caught:
        planned(store, folder, line)
    assert str(caught.value).partition("stages.asked.")[2] == message


@pytest.mark.parametrize(
    "line",
    [
        "probe.llc, weights: fit, data: thin",
        "probe.eigenvalues, weights: fit, k: 27",
        f"train, data: values, loss: mse, {TRAINING}",
    ],
)
def test_arrays_that_fit_are_planned(store, folder, line):
    assert planned(store, folder, line).counts("asked")["total"] == 1


def test_files_are_not_read_for_what_any_data_do_for(store, folder, monkeypatch):
    read, seen = SourceFiles.read, []

    def counted(self, params, form):
        seen.append(params)
        return read(self, params, form)

    monkeypatch.setattr(SourceFiles, "read", counted)
    planned(store, folder, "probe.llc, weights: fit")
    # Each once, by the check of its own kind; what `fit` takes is known by then, as an
    # mlp takes no labels of tokens. The probe takes the same data, whatever they are.
    files = ["thin.npz", "values.npz", "wide.npz"]
    assert sorted(params.path for params in seen) == files


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_reads_a_file_twice(store, folder, monkeypatch, seed):
    draw, read, seen = random.Random(seed), SourceFiles.read, []

    def counted(self, params, form):
        seen.append(params.path)
        return read(self, params, form)

    monkeypatch.setattr(SourceFiles, "read", counted)
    lines = [
        "train, data: thin, " + TRAINING,
        "train, data: thin, loss: cross_entropy, " + TRAINING,
        f"train, data: values, loss: mse, {TRAINING}",
        "probe.llc, weights: fit, data: thin",
        "probe.eigenvalues, weights: fit, k: 27",
        "data.modify, data: wide, normalise: standard",
    ]
    asked = draw.sample(lines, k=draw.randint(2, len(lines)))
    planned(store, folder, *asked)
    assert sorted(seen) == ["thin.npz", "values.npz", "wide.npz"]
