"""Presets reach the results of their source."""

import numpy as np
import pytest

from tests.tasks.toys import train_all, train_member, xor

SEEDS = 6
# Jarvis (2021), Tables 5.1 and 5.2: sum of the norms of the tensors, mean and deviation
# over ten runs.
XOR = {
    "tanh": {
        "sgd-small": (7.18, 0.29),
        "metric-small": (6.83, 0.27),
        "sgd-large": (27.08, 4.61),
        "metric-large": (24.12, 4.43),
        "l2-large": (18.44, 3.08),
        "l2-stopped-large": (20.7, 3.48),
        "selective-l2-large": (16.41, 5.06),
        "l2-stopped-selective-large": (15.23, 3.85),
    },
    "relu": {
        "sgd-small": (5.0, 0.18),
        "metric-small": (4.84, 0.21),
        "sgd-large": (24.49, 2.92),
        "metric-large": (22.16, 2.54),
        "l2-large": (16.77, 2.03),
        "l2-stopped-large": (18.8, 2.27),
        "selective-l2-large": (14.85, 3.84),
        "l2-stopped-selective-large": (12.63, 2.55),
    },
}


@pytest.mark.parametrize("activation", XOR)
def test_on_xor_the_norms_are_those_reported(activation):
    reported = XOR[activation]
    members = [
        train_member(
            xor(),
            model={"kind": "mlp", "hidden": [12], "activation": activation},
            rule={"preset": f"jarvis-2021/xor-{activation}/{name}"},
            seed=seed,
            epochs=400,
            loss="sse",
            record_every=400,
        )
        for name in reported
        for seed in range(SEEDS)
    ]
    norms = [float(done.arrays["norm_tensor_sum"]) for done in train_all(members)]
    means = np.reshape(norms, (len(reported), SEEDS)).mean(1)
    for (name, (mean, deviation)), actual in zip(reported.items(), means, strict=True):
        assert abs(actual - mean) < 2 * deviation, name
    # Weights that the loss does not hold decay by (1 - 0.001)^400 and (1 - 0.001)^280.
    large = means[2]
    np.testing.assert_allclose(means[4:6] / large, np.exp([-0.4, -0.28]), rtol=0.03)
