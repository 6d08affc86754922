"""Problems of data whose form is known before they are."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from curvflow.schemas.kind import Samples
from curvflow.schemas.losses import AnyLoss
from curvflow.schemas.models import AnyModel
from curvflow.schemas.nodes import Array, Data
from curvflow.tasks.networks.problems import Problem, pose


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
