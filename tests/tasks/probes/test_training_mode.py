"""Variances, slices and chains of a network in training, by formulas for its norm."""

from functools import partial

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.tasks.numerics.derivatives.variances import batches as drawn_batches
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.streams import stream
from tests.tasks.curvature.test_training_mode import (
    CHANCE,
    DATA,
    by_hand,
    fits,
    loss_by_hand,
    make_net,
    parameters,
)
from tests.tasks.probes.checks import probes
from tests.tasks.toys import as_data, blobs, compute, member, weights_of

SEEDS = (5, 6)
TRAIN = {"mode": "train", "train_batch_size": 5}


def probed(kind, data=DATA, **params):
    """Return the results of both networks."""
    several = [
        member(kind, {**params, "seed": seed}, weights=weights_of(fit), data=data)
        for fit, seed in zip(fits(), SEEDS, strict=True)
    ]
    return compute(kind, several)


def mean_loss(w, rows, mask):
    """The mean loss of samples that meet in a batch, whose mask is given."""
    x, labels = (torch.as_tensor(DATA[name])[rows] for name in ("inputs", "targets"))
    shapes = [p.shape for p in make_net().parameters()]
    pieces = w.split([shape.numel() for shape in shapes])
    W1, b1, scale, shift, W2, b2 = (
        p.reshape(s) for p, s in zip(pieces, shapes, strict=True)
    )
    h = x @ W1.T + b1
    spread = (h - h.mean(0)).square().mean(0)
    h = torch.tanh((h - h.mean(0)) / (spread + 1e-5).sqrt() * scale + shift)
    outputs = h * mask / (1 - CHANCE) @ W2.T + b2
    return torch.nn.functional.cross_entropy(outputs, labels.long())


def mask_of(seed, call, batch, size):
    draws = stream(seed, f"dropout {call}:{batch}")
    return torch.rand(size, 4, generator=draws, dtype=torch.float64) >= CHANCE


@pytest.mark.parametrize("size", [3, 5])
def test_the_gradient_variance_is_that_of_batches_of_training(size):
    found = probed("probe.gradient_variance", mode="train", batch_size=size)
    for got, fit, seed in zip(found, fits(), SEEDS, strict=True):
        w = parameters(fit).requires_grad_()
        order = torch.randperm(12, generator=stream(seed, "samples"))
        batches = order[: 12 // size * size].view(-1, size)
        # A second mask of each batch has a number behind all first ones.
        slopes, others = (
            torch.stack(
                [
                    torch.autograd.grad(
                        mean_loss(w, rows, mask_of(seed, 0, number, size)), w
                    )[0]
                    for number, rows in enumerate(batches, start=first)
                ]
            )
            for first in (0, len(batches))
        )
        arrays, count = got.arrays, len(batches)
        by_masks = size * (slopes - others).square().sum(1).mean().item() / 2
        S2 = size * slopes.var(0, correction=1).sum().item()
        assert arrays["gradient_variance"] == pytest.approx(S2, rel=1e-10)
        assert arrays["layer_gradient_variance"].sum() == pytest.approx(S2)
        distances = (slopes - slopes.mean(0)).square().sum(1)
        sem = size * (distances.var(correction=1) / count).sqrt().item()
        # Distances from the mean of their own are alike, those of two batches equal.
        if count > 2:
            sem *= count / ((count - 1) * (count - 2)) ** 0.5
        else:
            sem = 2**0.5 * S2
        assert arrays["gradient_variance_sem"] == pytest.approx(sem, rel=1e-8)
        law = (1 / size - 1 / 12) * S2 + by_masks / 12
        assert arrays["batch_gradient_variance"] == pytest.approx(law)
        norm = slopes.mean(0).square().sum().item()
        norm -= (1 / (count * size) - 1 / 12) * S2 + by_masks / 12
        assert arrays["gradient_squared_norm"] == pytest.approx(norm)
        assert arrays["num_samples_used"] == count * size


def test_without_norm_and_dropout_variances_are_those_of_evaluation():
    for kind, name in (
        ("probe.gradient_variance", "gradient_variance"),
        ("probe.hessian_variance", "hessian_variance_draws"),
    ):
        used, trained = (
            compute(kind, probes(kind, "tanh-ce", 2, mode=mode))
            for mode in ("eval", "train")
        )
        for one, other in zip(used, trained, strict=True):
            np.testing.assert_allclose(one.arrays[name], other.arrays[name], rtol=1e-9)


def test_the_hessian_variance_is_that_of_batches_of_training():
    given = {"batch_size": 4, "num_probes": 3}
    found = probed("probe.hessian_variance", mode="train", **given)
    used = probed("probe.hessian_variance", **given)
    for got, before, fit, seed in zip(found, used, fits(), SEEDS, strict=True):
        w, expected = parameters(fit), []
        for probe in range(3):
            # All probes are multiplied in one call, batches within probes.
            (rows,) = drawn_batches(
                [seed], probe, num_samples=12, num_batches=3, size=4
            )
            z = random_vectors([seed], len(w), range(probe, probe + 1), "rademacher")
            products = torch.stack(
                [
                    torch.autograd.functional.hessian(
                        partial(
                            mean_loss,
                            rows=few,
                            mask=mask_of(seed, 0, 3 * probe + number, 4),
                        ),
                        w,
                    )
                    @ z[0, :, 0]
                    for number, few in enumerate(rows)
                ]
            )
            expected.append(4 * products.var(0, correction=1).sum().item())
        draws = got.arrays["hessian_variance_draws"]
        np.testing.assert_allclose(draws, expected, rtol=1e-9)
        assert abs(before.arrays["hessian_variance"] / np.mean(expected) - 1) > 0.05


@pytest.mark.parametrize("directions", ["eigenvectors", "random"])
def test_slices_are_of_the_loss_of_batches_of_training(directions):
    given = {"directions": directions, "num_points": 5, "plane": True, "distance": 0.2}
    apart = blobs(num_samples=2, num_test=6, seed=3)
    tests = {name: apart[name] for name in ("test_inputs", "test_targets")}
    arrays = {name: DATA[name] for name in ("inputs", "targets", "num_classes")}
    data = as_data({**arrays, **tests}, "tested")
    found = probed("probe.landscape", data, **TRAIN, **given)
    used = probed("probe.landscape", data, **given)
    for got, before, fit, seed in zip(found, used, fits(), SEEDS, strict=True):
        w = parameters(fit).requires_grad_()
        here = loss_by_hand(w, seed, 5)
        arrays = got.arrays
        assert arrays["centre_train_loss"] == pytest.approx(here.item(), rel=1e-10)
        # A test loss is that of the network as it is used.
        test_loss = before.arrays["centre_test_loss"]
        assert arrays["centre_test_loss"] == pytest.approx(test_loss, rel=1e-12)
        assert abs(before.arrays["centre_train_loss"] / here.item() - 1) > 0.01
        (slope,) = torch.autograd.grad(here, w)
        H = by_hand(fit, seed, 5)
        if directions == "random":
            continue
        values, vectors = torch.linalg.eigh(H)
        top = values.abs().argsort(descending=True)[:2]
        np.testing.assert_allclose(arrays["rayleigh"], values[top], rtol=1e-6)
        for number, place in enumerate(top):
            d = vectors[:, place]
            d = d * d[d.abs().argmax()].sign()
            assert arrays["slope"][number] == pytest.approx(
                (slope @ d).item(), abs=1e-6
            )
            line = [
                loss_by_hand(w.detach() + t * d, seed, 5).item() for t in arrays["step"]
            ]
            np.testing.assert_allclose(arrays["train_loss"][number], line, rtol=1e-6)


CHAINS = {
    "sampling_method": "mala",
    "calibrate": "none",
    "lr": 1e-3,
    "localization": 5.0,
    "num_burnin_steps": 0,
    "num_chains": 2,
    "num_draws": 8,
    "num_steps_bw_draws": 2,
    "keep_draws": True,
}


def test_chains_walk_on_the_loss_of_batches_of_training():
    for got, fit, seed in zip(
        probed("probe.llc", **TRAIN, **CHAINS), fits(), SEEDS, strict=True
    ):
        arrays, w = got.arrays, parameters(fit)
        here = loss_by_hand(w, seed, 5).item()
        assert arrays["init_loss"] == pytest.approx(here, rel=1e-10)
        assert (arrays["distance_trace"] > 0).any()
        for losses, draws in zip(arrays["loss_trace"], arrays["draws"], strict=True):
            assert losses == pytest.approx(
                [loss_by_hand(torch.as_tensor(d), seed, 5).item() for d in draws]
            )


def test_calibration_measures_the_curvature_in_training():
    few = {
        "num_draws": 8,
        "num_steps_bw_draws": 1,
        "num_chains": 2,
        "num_burnin_steps": 10,
    }
    found = probed("probe.llc", **TRAIN, **few, sampling_method="multiscale_mala")
    for got, fit, seed in zip(found, fits(), SEEDS, strict=True):
        largest = torch.linalg.eigvalsh(by_hand(fit, seed, 5))[-1].item()
        # Or the mean curvature met, where that is larger.
        assert got.arrays["ritz_values"].max() == pytest.approx(largest, rel=1e-6)
        assert got.arrays["largest_eigenvalue"] >= largest * (1 - 1e-6)


def test_a_single_batch_and_a_norm_of_one_sample_are_refused():
    few = {"mode": "train", "batch_size": 7}
    with pytest.raises(InputError, match="batch_size: expected at most 6, half of"):
        probed("probe.gradient_variance", **few)
    with pytest.raises(InputError, match="more than one sample in every batch"):
        probed("probe.gradient_variance", mode="train")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "mode train.* cannot be combined with sampling_method null"),
        (
            {"sampling_method": "sgld"},
            "mode train.* cannot be combined with sampling_method sgld. Take",
        ),
        (
            {"sampling_method": "mala", "keep_losses": "samples"},
            "keep_losses samples cannot be combined with mode train",
        ),
    ],
)
def test_chains_of_minibatches_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        find_kind("probe.llc").params.model_validate({"mode": "train", **params})
