"""Losses that chains keep at their draws, against plain ones of each sample."""

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from curvflow.errors import InputError
from curvflow.schemas.losses import CrossEntropy
from curvflow.schemas.models import parse_model
from curvflow.tasks.llc import observed
from curvflow.tasks.llc.observed import observed_samples
from curvflow.tasks.networks.problems import Samples, pose

CHAINS, TRAIN, TEST, CLASSES = 4, 7, 3, 3
OWNER = torch.tensor([0, 1, 1, 0])
EXACT = {"rtol": 1e-12, "atol": 1e-13}


def problem_of(model, shape, **targets):
    known = {"inputs": np.zeros((TRAIN, *shape)), "targets": np.zeros(TRAIN)}
    return pose(
        parse_model(model),
        "cross_entropy",
        {
            **known,
            "test_targets": known["targets"][:0],
            "num_classes": np.array(CLASSES),
            **targets,
        },
    )


def splits_of(models, shape, labels=()):
    source = torch.Generator().manual_seed(1)
    return {
        split: Samples(
            torch.randn(models, count, *shape, generator=source).double(),
            torch.randint(CLASSES, (models, count, *labels), generator=source),
        )
        for split, count in (("train", TRAIN), ("test", TEST))
    }


def drawn(network):
    source = torch.Generator().manual_seed(2)
    weights_CD = torch.randn(CHAINS, network.num_parameters, generator=source).double()
    statistics_MS = 0.5 + torch.rand(2, network.statistics.size, generator=source)
    return weights_CD / 5, statistics_MS.double()


def plain(problem, samples, weights_D, statistics_S, model):
    """Losses of one chain, of the samples or tokens of its model."""
    model = model if len(samples.inputs) > 1 else 0
    w_1W = torch.cat([weights_D, statistics_S])[None]
    outputs = problem.network.outputs(w_1W, samples.inputs[model][None])[0]
    targets = samples.targets[model]
    flat = cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
    return flat.view(targets.shape)


def all_plain(problem, splits, weights_CD, statistics_MS):
    return [
        [
            plain(problem, each, w_D, statistics_MS[owner], owner)
            for each in splits.values()
        ]
        for w_D, owner in zip(weights_CD, OWNER.tolist(), strict=True)
    ]


@pytest.mark.parametrize("passes", ["one", "several"])
@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("name", ["dense", "norm"])
def test_losses_of_samples_are_plain_ones(monkeypatch, name, models, passes):
    if passes == "several":
        monkeypatch.setattr(observed, "CHAIN_BYTES", 1 << 11)
        monkeypatch.setattr(observed, "PASS_BYTES", {"cpu": 1 << 12})
    model = {"kind": "mlp", "hidden": [4]}
    shape = (3,)
    if name == "norm":
        model, shape = {"kind": "preresnet", "depth": 8, "width": 0.125}, (1, 8, 8)
    problem, splits = problem_of(model, shape), splits_of(models, shape)
    weights_CD, statistics_MS = drawn(problem.network)
    kept = observed_samples(problem, splits, kept="samples", most=5, num_samples=TRAIN)
    losses = kept.of_chains(statistics_MS, OWNER)
    expected = torch.stack(
        [
            torch.cat([train[:5], test])
            for train, test in all_plain(problem, splits, weights_CD, statistics_MS)
        ]
    )
    torch.testing.assert_close(losses.values(weights_CD), expected, **EXACT)
    assert losses.passes == pytest.approx((5 + TEST) / TRAIN / 3)
    told = kept.description(1 if models > 1 else 0)
    assert told["observed_row"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert told["observed_is_test"].tolist() == 5 * [False] + TEST * [True]
    labels = torch.cat([each.targets[-1][:5] for each in splits.values()])
    assert told["observed_label"].tolist() == labels.tolist()
    assert set(told["observed_token"]) == {-1}


@pytest.mark.parametrize("models", [1, 2])
def test_losses_of_labels_are_means_over_their_samples(models):
    problem = problem_of({"kind": "mlp", "hidden": [4]}, (3,))
    splits = splits_of(models, (3,))
    splits["test"].targets.clamp_(max=1)  # no test sample of label 2
    weights_CD, statistics_MS = drawn(problem.network)
    kept = observed_samples(
        problem, splits, kept="labels", most=None, num_samples=TRAIN
    )
    losses_CO = kept.of_chains(statistics_MS, OWNER).values(weights_CD)
    each = all_plain(problem, splits, weights_CD, statistics_MS)
    for chain, owner in enumerate(OWNER.tolist()):
        told = kept.description(owner if models > 1 else 0)
        assert told["observed_label"].tolist() == 2 * [0, 1, 2]
        for number in range(2 * CLASSES):
            part, label = divmod(number, CLASSES)
            samples = [*splits.values()][part]
            labels = samples.targets[owner if models > 1 else 0]
            assert told["observed_count"][number] == (labels == label).sum()
            expected = each[chain][part][labels == label].mean()
            torch.testing.assert_close(
                losses_CO[chain, number], expected, equal_nan=True, **EXACT
            )


def test_what_the_targets_do_not_have_is_refused():
    problem, splits = (
        problem_of({"kind": "mlp", "hidden": [4]}, (3,)),
        splits_of(1, (3,)),
    )
    assert json.loads(problem.text)["num_outputs"] == CLASSES
    with pytest.raises(InputError, match="without labels of tokens, got tokens"):
        observed_samples(problem, splits, kept="tokens", most=None, num_samples=TRAIN)
    empty = {"test": splits["test"].rows(slice(0))}
    with pytest.raises(InputError, match="observed: expected data with test samples"):
        observed_samples(problem, empty, kept="samples", most=None, num_samples=TRAIN)


def make_words():
    layers = torch.nn.Embedding(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, CLASSES)
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize("kept", ["tokens", "labels", "samples", "samples of tokens"])
@pytest.mark.parametrize("seed", range(8))
def test_losses_of_labels_that_count_have_the_loss_for_their_mean(kept, seed):
    draw = np.random.default_rng(seed)
    settings = {
        "label_smoothing": float(draw.choice([0.0, 0.3])),
        "class_weights": None if draw.random() < 0.5 else [0.5, 2.0, 1.0],
    }
    shape = (TRAIN, 4) if "tokens" in kept else (TRAIN,)
    models = int(draw.integers(1, 3))
    labels = draw.integers(0, CLASSES, (models, *shape))
    labels[draw.random(labels.shape) < 0.4] = -100
    labels.reshape(models, -1)[:, :2] = 0
    model = {"factory": f"{__name__}:make_words"}
    inputs = draw.integers(0, 5, (models, TRAIN, 4))
    if "tokens" not in kept:
        model, inputs = (
            {"kind": "mlp", "hidden": [4]},
            draw.normal(size=(models, TRAIN, 3)),
        )
    data = {
        "inputs": inputs[0],
        "targets": labels[0],
        "test_targets": labels[0, :0],
        "num_classes": np.array(CLASSES),
    }
    loss = CrossEntropy(**settings)
    problem = pose(parse_model(model), loss, data)
    targets = np.stack([problem.criterion.loaded(each) for each in labels])
    samples = Samples(torch.as_tensor(inputs), torch.as_tensor(targets))
    weights_CD, statistics_MS = drawn(problem.network)
    most = int(draw.integers(2, TRAIN + 1))
    observed_only = observed_samples(
        problem,
        {"train": samples},
        kept=kept.partition(" ")[0],
        most=most,
        num_samples=TRAIN,
    )
    losses_CO = observed_only.of_chains(statistics_MS, OWNER).values(weights_CD)
    weight = settings["class_weights"]
    weight = None if weight is None else torch.tensor(weight).double()
    for chain, owner in enumerate(OWNER.tolist()):
        number = owner if models > 1 else 0
        told = observed_only.description(number)
        outputs = problem.network.outputs(
            weights_CD[chain][None], samples.inputs[[number]]
        )
        wanted = torch.as_tensor(labels[number])
        terms = cross_entropy(
            outputs[0].flatten(0, -2),
            wanted.flatten(),
            reduction="none",
            weight=weight,
            label_smoothing=settings["label_smoothing"],
        ).view(wanted.shape)
        whole = cross_entropy(
            outputs[0].flatten(0, -2),
            wanted.flatten(),
            weight=weight,
            label_smoothing=settings["label_smoothing"],
        )
        counts = wanted >= 0
        terms = terms * whole / terms[counts].mean()  # weights by class are no counts
        terms, wanted, counts = terms[:most], wanted[:most], counts[:most]
        if kept == "tokens":
            expected = terms.where(counts, torch.nan).flatten()
            assert told["observed_count"].tolist() == counts.flatten().tolist()
            assert (
                told["observed_label"].tolist()
                == wanted.clamp(min=-1).flatten().tolist()
            )
        elif "samples" in kept:
            rows = counts.view(most, -1)
            expected = terms.view(most, -1).where(rows, 0.0).sum(1) / rows.sum(1)
            assert told["observed_count"].tolist() == rows.sum(1).tolist()
            label = (
                wanted.clamp(min=-1) if wanted.ndim == 1 else torch.full((most,), -1)
            )
            assert told["observed_label"].tolist() == label.tolist()
        else:
            expected = torch.stack([terms[wanted == n].mean() for n in range(CLASSES)])
            counted = [int((wanted == n).sum()) for n in range(CLASSES)]
            assert told["observed_count"].tolist() == counted
        torch.testing.assert_close(losses_CO[chain], expected, equal_nan=True, **EXACT)
