"""Building blocks of networks, for a batch of models at once.

A part is built from the shape of one input sample, which fixes its tensors and the
shape of its outputs. Activations have shape (M or 1, N, *shape of a sample).
"""

from curvflow.tasks.networks.parts.convolution import convolution, pooling
from curvflow.tasks.networks.parts.normalisation import batch_norm, group_norm
from curvflow.tasks.networks.parts.part import (
    BuiltPart,
    Part,
    activation,
    chain,
    check_images,
    dense_part,
    dropout_part,
    flatten,
    network_of,
    residual,
)
from curvflow.tasks.networks.parts.sequence import tokenwise

__all__ = [
    "BuiltPart",
    "Part",
    "activation",
    "batch_norm",
    "chain",
    "check_images",
    "convolution",
    "dense_part",
    "dropout_part",
    "flatten",
    "group_norm",
    "network_of",
    "pooling",
    "residual",
    "tokenwise",
]
