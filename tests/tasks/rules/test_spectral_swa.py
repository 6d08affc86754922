"""Averages of spectral gradient descent."""

import numpy as np

from tests.tasks.toys import blobs, train_all, train_member

# For the tests that hold for all rules.
SETTINGS = [
    {"start": 2, "refresh_every": 2, "max_momentum": 0.3},
    {"start": 1, "lr": 0.05, "every": 3, "max_momentum": 0.2, "weight_decay": 0.01},
]

FIELDS = {"max_momentum": 0.3, "refresh_every": 2}


def trained(name, epochs, **fields):
    made = train_member(
        blobs(),
        rule={"rule": name, **FIELDS, **fields},
        epochs=epochs,
        batch_size=10,
        checkpoints={"every": 1},
    )
    return train_all([made, made])[0].arrays


def test_the_result_is_the_mean_of_the_points_that_spectral_sgd_goes_through():
    plain = trained("spectral_sgd", 5)
    averaged = trained("spectral_swa", 5, start=3)
    np.testing.assert_allclose(
        averaged["weights"][:3], plain["weights"][:3], rtol=1e-12
    )
    np.testing.assert_allclose(
        averaged["weights"][-1], plain["weights"][3:].mean(0), rtol=1e-9
    )


def test_it_chooses_the_same_rates():
    plain = trained("spectral_sgd", 4)
    averaged = trained("spectral_swa", 4, start=2)
    for name in ("lr", "chosen_momentum"):
        np.testing.assert_allclose(averaged[name], plain[name], rtol=1e-9)
