"""Problems of data whose form alone is known, and networks on drawn inputs."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from curvflow.schemas.kind import Samples
from curvflow.schemas.losses import AnyLoss
from curvflow.schemas.models import AnyModel
from curvflow.schemas.nodes import Array, Data
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.networks.problems import Problem, pose
from curvflow.tasks.numerics.kronecker.recorded import MOST_TRIED, Recorded
from curvflow.tasks.numerics.streams import stream

# Deviation of what is added to initial weights, some of which are zero.
NOISE = 0.1


def planned_problem(model: AnyModel, loss: AnyLoss, samples: Samples) -> Problem:
    """Pose the problem of fitting a model to samples of some form.

    Args:
        model: specification of the model.
        loss: the loss.
        samples: with shape, targets and outputs.

    Returns:
        The problem.

    Raises:
        InputError: the loss or the model does not fit the targets.
    """
    assert samples.shape is not None
    assert samples.outputs is not None
    kind = np.float64 if samples.vocabulary is None else np.int64
    labels = () if samples.tokens is None else (samples.tokens,)
    of_labels = samples.targets == "labels"
    targets = (
        np.zeros((1, *labels), np.int64)
        if of_labels
        else np.zeros((1, samples.outputs))
    )
    content: dict[str, Array] = {
        "inputs": np.zeros((1, *samples.shape), kind),
        "targets": targets,
        "test_targets": targets[:0],
        "num_classes": np.array(samples.outputs),
    }
    return pose(model, loss, Data("", "", {}, content, ""))


@lru_cache(maxsize=64)
def tensor_names(model: AnyModel, loss: AnyLoss, samples: Samples) -> tuple[str, ...]:
    """Return the names of a model's parameter tensors, if fitted to such samples.

    Args:
        model: specification of the model.
        loss: the loss.
        samples: with shape, targets and outputs.

    Raises:
        InputError: the loss or the model does not fit the targets.
    """
    return planned_problem(model, loss, samples).network.layout.names


def drawn_networks(problem: Problem) -> Recorded:
    """Return a model with drawn inputs, by which uses of parameters are known.

    A module of the user's own has more of them, for numbers may decide on its uses.

    Args:
        problem: network and loss, which is not looked at.
    """
    network, generator = problem.network, stream(0, "kfac")
    count = 2 if network.notes_all else MOST_TRIED
    weights, statistics = network.split(initial_weights(network, generator, None))
    noise = torch.randn(len(weights), generator=generator, dtype=torch.float64)
    shape = (1, count, *problem.input_shape)
    if problem.takes_integers:
        inputs = torch.randint(network.vocabulary or 2, shape, generator=generator)
    else:
        inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Recorded(
        call=network.outputs_and_uses,
        names=network.layout.names,
        shapes=network.layout.shapes,
        weights=(weights + NOISE * noise).unsqueeze(0),
        fixed=statistics.unsqueeze(0),
        inputs=inputs,
        targets=torch.zeros(1, count),
        roots=lambda _, outputs: outputs.unsqueeze(2),
        batch_size=count,
        models_per_pass=1,
    )
