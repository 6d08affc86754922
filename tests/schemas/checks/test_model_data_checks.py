"""Data that do not fit a model, a loss or the weights, refused while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study

STUDY = """\
study: problems
axes: {pairs: [3, 5]}
stages:
  xor: {use: data.xor}
  points: {use: data.xor, labels: index}
  strings: {use: data.xord, pairs: "${pairs}", num_train: 8, num_test: 2}
  digits: {use: data.digits}
  noughts: {use: data.modify, data: digits, classes: [0, 1]}
  columns: {use: data.modify, data: digits, labels: one_hot}
  themselves: {use: data.modify, data: digits, targets: inputs}
  taught: {use: data.teacher, dim: 64, outputs: 12}
  sorted: {use: data.teacher, dim: 64, outputs: 12, labels: class}
  sums: {use: data.modular, p: 7}
  images: {use: data.mnist}
  rows: {use: data.mnist, flatten: true}
  own: {use: data.factory, factory: "nets:spirals"}
  pair: {use: data.array, path: pair.npz, inputs: [ids, mask]}
  some: {use: data.modify, data: pair, num_train: 4}
  of_xor: {use: train, data: xor, model: {kind: mlp, hidden: [3]}, epochs: 4,
           rule: {rule: sgd, lr: 0.1}, checkpoints: {every: 2}}
  of_strings: {use: train, data: strings, model: {kind: linear}, epochs: 4,
               rule: {rule: sgd, lr: 0.1}}
  of_digits: {use: train, data: digits, model: {kind: mlp, hidden: [3]}, epochs: 4,
              rule: {rule: sgd, lr: 0.1}}
  of_columns: {use: train, data: columns, model: {kind: linear}, epochs: 4,
               rule: {rule: sgd, lr: 0.1}}
  of_images: {use: train, data: images, model: {kind: lenet5}, epochs: 4,
              rule: {rule: sgd, lr: 0.1}}
  of_pixels: {use: train, data: images, model: {kind: linear}, epochs: 4,
              rule: {rule: sgd, lr: 0.1}}
  of_own: {use: train, data: own, model: {kind: linear}, epochs: 4,
           rule: {rule: sgd, lr: 0.1}}
  of_pairs: {use: train, data: strings, model: {kind: gru, hidden: 3}, epochs: 4,
             rule: {rule: sgd, lr: 0.1}}
  module: {use: train, data: xor, model: {factory: "nets:make"}, epochs: 4,
           rule: {rule: sgd, lr: 0.1}}
"""
# Behind what a case gives of a training.
REST = "epochs: 1, rule: {rule: sgd, lr: 0.1}"
LINEAR = f"model: {{kind: linear}}, {REST}"
MLP = f"model: {{kind: mlp, hidden: [3]}}, {REST}"


def loaded(line):
    return load_study(f"{STUDY}  asked: {{use: {line}}}\n", file="study.yaml")


def refused(line):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    place, _, message = str(caught.value).partition(": stages.asked.")
    assert place.startswith("study.yaml:37:")
    return message


def other(expected, weights, data, got, of):
    return (
        f"data: expected data with {expected}, as '{weights}' was trained on, got "
        f"{data} with {got}. Give data like {of}, or train a network on {data}."
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            f"train, data: some, {MLP}",
            "model: expected one input a sample for mlp, got ids, mask of 'some'. Take "
            "the module of a factory, whose forward has these names.",
        ),
        (
            "probe.llc, weights: of_xor, data: digits",
            other("2 inputs", "of_xor", "'digits'", "64 inputs", "'xor'"),
        ),
        (
            "probe.hessian_trace, weights: of_xor, data: strings",
            other("2 inputs", "of_xor", "'strings' at pairs=3", "3x2 inputs", "'xor'"),
        ),
        (
            "probe.trace, weights: of_strings, data: xor",
            other(
                "3x2 inputs", "of_strings", "'xor'", "2 inputs", "'strings' at pairs=3"
            ),
        ),
        (
            "probe.spectrum, weights: of_images, data: rows",
            other("1x28x28 inputs", "of_images", "'rows'", "784 inputs", "'images'"),
        ),
        (
            "probe.eigenvalue_tracking, trajectory: of_xor, data: digits",
            other("2 inputs", "of_xor", "'digits'", "64 inputs", "'xor'"),
        ),
        (
            "probe.landscape, weights: of_xor, data: points",
            other("values as targets", "of_xor", "'points'", "labels", "'xor'"),
        ),
        (
            "probe.spectrum, weights: of_digits, data: taught",
            other("labels as targets", "of_digits", "'taught'", "values", "'digits'"),
        ),
        (
            "probe.gradient_variance, weights: of_digits, data: sorted",
            other(
                "labels of at most 10 classes",
                "of_digits",
                "'sorted'",
                "labels of 12 classes",
                "'digits'",
            ),
        ),
        (
            "probe.hessian_variance, weights: of_columns, data: taught",
            other(
                "10 values per target",
                "of_columns",
                "'taught'",
                "12 values per target",
                "'columns'",
            ),
        ),
        (
            "probe.trace, weights: of_pairs, data: xor",
            other(
                "3x2 inputs", "of_pairs", "'xor'", "2 inputs", "'strings' at pairs=3"
            ),
        ),
        (
            f"train, weights: of_xor, data: digits, {MLP}",
            other("2 inputs", "of_xor", "'digits'", "64 inputs", "'xor'"),
        ),
        (
            f"train, weights: of_pixels, data: rows, {LINEAR}",
            other("1x28x28 inputs", "of_pixels", "'rows'", "784 inputs", "'images'"),
        ),
        (
            f"train, weights: of_digits, data: noughts, {MLP}",
            other(
                "labels of 10 classes",
                "of_digits",
                "'noughts'",
                "labels of 2 classes",
                "'digits'",
            ),
        ),
    ],
)
def test_data_that_a_network_was_not_trained_on_the_like_of_are_refused(line, message):
    assert refused(line) == message


@pytest.mark.parametrize(
    "line",
    [
        "probe.llc, weights: of_digits, data: noughts",
        "probe.llc, weights: of_columns, data: columns",
        "probe.spectrum, weights: of_pixels, data: rows",
        "probe.spectrum, weights: of_strings, data: strings",
        "probe.spectrum, weights: of_xor, data: own",
        "probe.spectrum, weights: of_own, data: xor",
        "probe.spectrum, weights: module, data: strings",
        f"train, weights: of_digits, data: columns, {MLP}",
    ],
)
def test_data_that_fit_or_are_known_only_to_a_run_are_accepted(line):
    assert loaded(line).stages["asked"].kind.name in line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            f"train, loss: mse, data: digits, {MLP}",
            "loss: expected cross_entropy for the labels of 'digits', got mse. Take "
            "cross_entropy or auto, or data.modify with labels: one_hot.",
        ),
        (
            f"train, loss: sse, data: points, {MLP}",
            "loss: expected cross_entropy for the labels of 'points', got sse. Take "
            "cross_entropy or auto, or data.modify with labels: one_hot.",
        ),
        (
            f"train, loss: cross_entropy, data: columns, {MLP}",
            "loss: expected mse or sse for the values of 'columns', got cross_entropy. "
            "Take mse, sse or auto, or data with labels.",
        ),
        (
            f"train, loss: gaussian, data: digits, {MLP}",
            "loss: expected cross_entropy for the labels of 'digits', got gaussian. "
            "Take cross_entropy or auto, or data.modify with labels: one_hot.",
        ),
        (
            f"train, loss: bce, data: digits, {MLP}",
            "loss: expected labels of 2 classes for bce, got 10, of 'digits'. Take "
            "cross_entropy, or data.modify with labels: one_hot.",
        ),
        (
            "train, loss: {kind: cross_entropy, class_weights: [1.0, 2.0]}, "
            f"data: digits, {MLP}",
            "loss.class_weights: expected one for each of the 10 classes, got 2, of "
            "'digits'. Give as many.",
        ),
        (
            "train, loss: gaussian, data: themselves, "
            f"model: {{kind: autoencoder, hidden: [3]}}, {REST}",
            "loss: expected a loss of the 64 outputs of autoencoder, got gaussian, "
            "which takes 128 for 64 values per target of 'themselves'. Take mse or bce "
            "with targets: inputs, or model mlp.",
        ),
        (
            "train, loss: {kind: mixture_bernoulli, components: 3}, data: themselves, "
            f"model: {{kind: autoencoder, hidden: [3]}}, {REST}",
            "loss: expected a loss of the 64 outputs of autoencoder, got "
            "mixture_bernoulli, which takes 195 for 64 values per target of "
            "'themselves'. Take mse or bce with targets: inputs, or model mlp.",
        ),
        (
            f"train, data: digits, model: {{kind: autoencoder, hidden: [3]}}, {REST}",
            "loss: expected a loss of the 64 outputs of autoencoder, got auto, which "
            "takes 10 for labels of 10 classes of 'digits'. Take mse or bce with "
            "targets: inputs, or model mlp.",
        ),
        (
            f"train, augment: {{flip: true}}, data: columns, {MLP}",
            "augment: expected images (channels, height, width) for shift, flip and "
            "erase, got 64 inputs of 'columns'. Remove these, or do not flatten the "
            "images.",
        ),
        (
            f"train, label_noise: 0.1, data: columns, {MLP}",
            "label_noise: expected labels for label_noise, got the values of "
            "'columns'. Remove it, or take data with labels.",
        ),
        (
            "weights.import, data: digits, path: net.npz, loss: mse, "
            "model: {kind: linear}",
            "loss: expected cross_entropy for the labels of 'digits', got mse. Take "
            "cross_entropy or auto, or data.modify with labels: one_hot.",
        ),
        (
            f"train, data: xor, model: {{kind: logistic}}, {REST}",
            "model: expected targets that are labels for logistic, got the values of "
            "'xor'. Take data with labels, or model linear.",
        ),
        (
            f"train, data: rows, model: {{kind: lenet5}}, {REST}",
            "model: expected images (channels, height, width) for lenet5, got 784 "
            "inputs of 'rows'. Take images that are not flattened, or a dense model.",
        ),
        (
            "data.modify, data: taught, relabel: parity",
            "relabel: expected a label for each sample, got the values of 'taught'. "
            "Remove it, or take data with labels.",
        ),
        (
            f"train, data: images, model: {{kind: vit, patch_size: 8}}, {REST}",
            "model: expected a patch_size that divides the sides of the images, 28 and "
            "28, got 8, for 'images'. Take another, or crop the images.",
        ),
        (
            f"train, data: rows, model: {{kind: vit, patch_size: 7}}, {REST}",
            "model: expected images (channels, height, width) for vit, got 784 inputs "
            "of 'rows'. Take images that are not flattened, or a dense model.",
        ),
        (
            f"train, data: images, model: {{kind: transformer}}, {REST}",
            "model: expected rows of tokens, or of vectors, for transformer, got "
            "inputs of shape (1, 28, 28), for 'images'. Take a model of images, or "
            "reshape them to (tokens, features).",
        ),
        (
            f"train, data: rows, model: {{kind: gru, hidden: 3}}, {REST}",
            "model: expected a vocabulary for tokens with one target a sample, got "
            "none, for 'rows'. Set vocabulary to the number of different tokens.",
        ),
        (
            "train, data: rows, model: {kind: transformer, vocabulary: 9, "
            f"context: 700}}, {REST}",
            "model: expected at most 700 tokens a sample, the context, got 784, for "
            "'rows'. Raise context, or take shorter samples.",
        ),
        (
            f"train, data: strings, model: {{kind: lstm, hidden: 3, vocabulary: 2}}, "
            f"{REST}",
            "model: expected tokens with vocabulary, got vectors of shape (3, 2), "
            "for 'strings' at pairs=3. Remove vocabulary, or give tokens.",
        ),
        (
            f"train, data: strings, model: {{kind: lstm, hidden: 3, embedding: 2}}, "
            f"{REST}",
            "model: expected tokens with embedding, got vectors of shape (3, 2), "
            "for 'strings' at pairs=3. Remove embedding, or give tokens.",
        ),
        (
            f"train, data: strings, model: {{kind: transformer, tied: true}}, {REST}",
            "model: expected tokens with tied, got vectors of shape (3, 2), "
            "for 'strings' at pairs=3. Set tied false, or give tokens.",
        ),
        (
            f"train, data: sums, model: {{kind: transformer, vocabulary: 7}}, {REST}",
            "model.vocabulary: expected at least the 8 tokens of 'sums', got 7. Raise "
            "it.",
        ),
        (
            "train, data: strings, model: {kind: attention_only, readout: tokens}, "
            f"{REST}",
            "model: expected a label for each token with readout tokens, got one "
            "target a sample, for 'strings' at pairs=3. Take readout last or mean.",
        ),
    ],
)
def test_a_loss_or_a_model_that_is_not_for_the_data_is_refused(line, message):
    assert refused(line) == message


@pytest.mark.parametrize(
    "line",
    [
        f"train, loss: mse, data: columns, {MLP}",
        f"train, loss: sse, data: xor, {MLP}",
        f"train, loss: cross_entropy, data: points, {MLP}",
        f"train, loss: mse, data: own, {MLP}",
        f"train, data: sums, model: {{kind: transformer, vocabulary: 8}}, {REST}",
        f"train, data: strings, model: {{kind: gru, hidden: 3}}, {REST}",
    ],
)
def test_a_loss_for_the_targets_or_for_unknown_ones_is_accepted(line):
    assert loaded(line).stages["asked"].kind.name == "train"


def test_a_loss_from_an_axis_is_refused_there():
    text = STUDY.replace("pairs: [3, 5]", "pairs: [3, 5], loss: [auto, mse]")
    line = f'  asked: {{use: train, loss: "${{loss}}", data: digits, {MLP}}}\n'
    with pytest.raises(StudyError, match=r":2:36: axes\.loss\.1: .* at loss='mse'"):
        load_study(text + line, file="study.yaml")


@pytest.mark.parametrize(
    ("line", "most", "of"),
    [
        ("probe.eigenvalues, weights: of_xor", 13, "'of_xor'"),
        ("probe.eigenvalue_tracking, trajectory: of_xor", 13, "'of_xor'"),
        ("probe.eigenvalues, weights: of_strings", 7, "'of_strings'"),
        (
            "probe.eigenvalues, weights: of_xor, layers: [layer1.*]",
            9,
            "'of_xor' in these layers",
        ),
    ],
)
def test_more_eigenvalues_than_parameters_are_refused(line, most, of):
    assert refused(f"{line}, k: {most + 1}") == (
        f"k: expected at most the {most} parameters of {of}, got {most + 1}. Lower it."
    )
    assert loaded(f"{line}, k: {most}").stages["asked"].kind.name in line


@pytest.mark.parametrize(
    ("loss", "outputs"),
    [
        ("gaussian", 2),
        ("{kind: mixture_bernoulli, components: 3}", 6),
        ('{factory: "nets:loss", num_outputs: 5}', 5),
        ("mse", 1),
    ],
)
def test_parameters_are_counted_by_the_outputs_that_a_loss_takes(loss, outputs):
    fit = f"  fit: {{use: train, loss: {loss}, data: xor, {MLP}}}\n"
    most = 3 * 3 + 4 * outputs
    for k in (most, most + 1):
        study = f"{STUDY}{fit}  asked: {{use: probe.eigenvalues, weights: fit, k: {k}}}"
        if k == most:
            load_study(f"{study}\n", file="study.yaml")
        else:
            with pytest.raises(StudyError, match=f"at most the {most} parameters"):
                load_study(f"{study}\n", file="study.yaml")


def test_eigenvalues_of_what_is_known_only_once_built_are_not_counted():
    for weights in ("of_images", "of_own", "module"):
        assert loaded(f"probe.eigenvalues, weights: {weights}, k: 99999")
