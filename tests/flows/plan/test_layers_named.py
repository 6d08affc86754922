"""Patterns of layers are held against the tensors of built-in models while planning."""

import numpy as np
import pytest

from curvflow.errors import StudyError
from curvflow.flows.plan.plan import make_plan
from tests.flows.toys import opened

VECTORS = "data.sinusoid"
IMAGES = "data.array, path: images.npz"
TOKENS = "data.modular, p: 5"
SIZED = "vocabulary: 6, width: 4, layers: 1"
MODELS = {
    "mlp, hidden: [3]": (VECTORS, "layer1.weight"),
    "deep_linear, hidden: [3]": (VECTORS, "layer1.weight"),
    "conv1d_xord": ("data.xord", "filter1.*"),
    "lenet5": (IMAGES, "conv1.weight"),
    "lstm, vocabulary: 6, embedding: 3, hidden: 3": (TOKENS, "*.weight"),
    "gru, vocabulary: 6, embedding: 3, hidden: 3": (TOKENS, "*.weight"),
    f"transformer, {SIZED}, heads: 2": (TOKENS, "*.weight"),
    f"attention_only, {SIZED}, heads: 2": (TOKENS, "*.weight"),
    "resnet, widths: [2], blocks: [1]": (IMAGES, "*.weight"),
    "vit, patch_size: 4, width: 4, heads: 2, depth: 1": (IMAGES, "*.weight"),
}


@pytest.fixture
def folder(tmp_path):
    images = np.zeros((4, 1, 28, 28))
    np.savez(tmp_path / "images.npz", inputs=images, targets=np.arange(4) % 2)
    return tmp_path


def planned(store, folder, model, data, pattern):
    text = (
        "study: layers\naxes: {}\nstages:\n"
        f"  data: {{use: {data}}}\n"
        f"  fit: {{use: train, data: data, epochs: 1, rule: {{rule: sgd, lr: 0.1}},\n"
        f"        model: {{kind: {model}}}}}\n"
        f"  trace: {{use: probe.trace, weights: fit, layers: ['{pattern}']}}\n"
    )
    given = opened(store, text=text, folder=folder)
    make_plan(given.study, given.store, given.files)


@pytest.mark.parametrize("model", MODELS)
def test_a_pattern_without_a_tensor_is_refused(store, folder, model):
    data, known = MODELS[model]
    planned(store, folder, model, data, known)
    message = "toys.yaml:7:.*expected parameter tensors of 'fit', got nothing"
    with pytest.raises(StudyError, match=f"{message}.*Known:") as caught:
        planned(store, folder, model, data, "nothing")
    assert "\n" not in str(caught.value)


def test_a_near_miss_names_what_was_meant(store, folder):
    data, _ = MODELS["lenet5"]
    with pytest.raises(StudyError, match=r"Did you mean 'conv1\.weight'"):
        planned(store, folder, "lenet5", data, "conv1.weigth")


def test_a_module_of_ones_own_is_not_called_in_planning(store):
    own = "{factory: 'tests.tasks.toys:make_batch_norm'}"
    text = (
        "study: layers\naxes: {}\nstages:\n  data: {use: data.xord}\n"
        "  fit: {use: train, data: data, epochs: 1, rule: {rule: sgd, lr: 0.1},\n"
        f"        model: {own}}}\n"
        "  trace: {use: probe.trace, weights: fit, layers: [nothing]}\n"
    )
    given = opened(store, text=text)
    make_plan(given.study, given.store, given.files)
