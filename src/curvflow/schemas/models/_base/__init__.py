"""Bases of the specifications of models."""

from curvflow.schemas.models._base.model import (
    Activation,
    Model,
    Pooling,
    Some,
    SomeWidths,
    Widths,
    dense_sizes,
    weights_of,
)
from curvflow.schemas.models._base.sequence_model import Readout, SequenceModel

__all__ = [
    "Activation",
    "Model",
    "Pooling",
    "Readout",
    "SequenceModel",
    "Some",
    "SomeWidths",
    "Widths",
    "dense_sizes",
    "weights_of",
]
