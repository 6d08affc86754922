"""Which networks are dense layers one after another."""

from __future__ import annotations

import json

from curvflow.schemas.models import parse_model
from curvflow.schemas.models.autoencoder import Autoencoder
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.models.linear import Linear
from curvflow.schemas.models.logistic import Logistic
from curvflow.schemas.models.mlp import Mlp
from curvflow.tasks.numerics.dense_gradients import DenseForm
from curvflow.tasks.problems import Problem


def dense_form(problem: Problem) -> DenseForm | None:
    """Return the form of a problem's network, or None if it is no such network.

    Dropout makes no difference: what is described is the network when not in training.

    Args:
        problem: its text tells the model.
    """
    model = parse_model(json.loads(problem.text)["model"])
    hidden_activation, linear = "identity", tuple[int, ...]()
    if isinstance(model, Mlp):
        hidden_activation, linear = model.activation, model.linear_layers
    elif isinstance(model, Autoencoder):
        hidden_activation = model.activation
        linear = (len(model.hidden),) if model.linear_code else ()
    elif not isinstance(model, DeepLinear | Linear | Logistic):
        return None
    layout = problem.network.layout
    weights = [shape for shape in layout.shapes if len(shape) == 2]
    return DenseForm(
        widths=(weights[0][1], *(after for after, _ in weights)),
        activations=tuple(
            "identity" if number in linear else hidden_activation
            for number in range(1, len(weights))
        ),
        bias=len(layout.shapes) > len(weights),
        has_reference=isinstance(model, Logistic),
    )
