"""Labels that are replaced in training, drawn anew in each epoch."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.networks.problems import Samples
from curvflow.tasks.training.batches import LabelNoise
from curvflow.tasks.training.gradients import Noise
from tests.tasks.toys import TANH_NET, blobs, train_all, train_member, waves

LIKE = torch.zeros(1, dtype=torch.float64)


def noisy(share, classes, count=4000, seeds=(0, 1), step=0, models=1):
    y = torch.arange(count).remainder(classes).expand(models, -1)
    samples = Samples(torch.zeros(models, count, 2), y)
    noise = Noise(seeds, step, "labels", LIKE)
    return y, LabelNoise(share, classes).applied(samples, noise)


@pytest.mark.parametrize("models", [1, 2])
def test_the_share_is_replaced_evenly_by_the_other_classes(models):
    share, classes, count = 0.3, 4, 4000
    y, samples = noisy(share, classes, count, models=models)
    assert samples.inputs.shape == (2, count, 2)
    for labels in samples.targets:
        table = torch.zeros(classes, classes)
        table.index_put_((y[0], labels), torch.ones(count), accumulate=True)
        expected = torch.full((classes, classes), share / (classes - 1))
        expected.fill_diagonal_(1 - share)
        error = table / (count / classes) - expected
        sem = (expected * (1 - expected) / (count / classes)).sqrt()
        assert (error.abs() < 5 * sem).all()


def test_at_share_1_no_label_stays_and_at_0_all_do():
    for classes in (2, 3, 10):
        y, all_replaced = noisy(1.0, classes)
        assert (all_replaced.targets != y).all()
        assert torch.equal(noisy(0.0, classes)[1].targets, y.expand(2, -1))


def test_noise_is_of_the_seed_and_the_step():
    first = noisy(0.5, 3, seeds=(0, 0, 1))[1].targets
    later = noisy(0.5, 3, seeds=(0, 0, 1), step=1)[1].targets
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])
    assert not torch.equal(first[0], later[0])


def fitted(rules, **settings):
    fixed = {"model": TANH_NET, "epochs": 3, **settings}
    return train_all([train_member(blobs(), rule=spec, **fixed) for spec in rules])


SGD = {"rule": "sgd", "lr": 0.1}


@pytest.mark.parametrize("batch_size", [None, 8])
def test_training_takes_the_noise_and_measures_without(batch_size):
    clean, noise = (
        fitted([SGD] * 2, batch_size=batch_size, label_noise=share)[0].arrays
        for share in (0.0, 0.5)
    )
    assert clean["train_loss"][0] == noise["train_loss"][0]
    assert not np.allclose(clean["weights"], noise["weights"], rtol=1e-3)


def test_at_share_1_of_two_classes_training_is_on_the_opposite():
    data = blobs(num_classes=2)
    opposite = blobs(num_classes=2)
    opposite.arrays["targets"] = 1 - data["targets"]
    fixed = {"model": TANH_NET, "epochs": 2, "batch_size": 8, "rule": SGD}
    noise = train_all([train_member(data, label_noise=1.0, **fixed)] * 2)[0]
    other = train_all([train_member(opposite, **fixed)] * 2)[0]
    np.testing.assert_allclose(
        noise.arrays["weights"], other.arrays["weights"], rtol=1e-10
    )


def test_both_gradients_of_a_step_see_the_same_labels():
    sam = {"rule": "sam", "inner": SGD, "rho": 0.0}
    first, other = fitted([sam, SGD], label_noise=0.4, batch_size=8, accumulation=2)
    np.testing.assert_allclose(
        first.arrays["weights"], other.arrays["weights"], rtol=1e-10
    )


def test_values_have_no_labels_to_replace():
    with pytest.raises(InputError, match="label_noise cannot be combined with values"):
        train_all([train_member(waves(), label_noise=0.1)] * 2)
