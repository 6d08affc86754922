"""Parts that networks are put together from, for a batch of models at once.

A part is told the shape of one sample that comes in, and then knows its tensors and
what it returns. What passes through has shape (M or 1, N, *that of a sample).
"""

from curvflow.tasks.networks.parts.batch_norm import batch_norm
from curvflow.tasks.networks.parts.convolution import convolution, pooling
from curvflow.tasks.networks.parts.part import (
    Part,
    Placed,
    activation,
    chain,
    check_images,
    dense_part,
    dropout_part,
    flatten,
    network_of,
    residual,
)

__all__ = [
    "Part",
    "Placed",
    "activation",
    "batch_norm",
    "chain",
    "check_images",
    "convolution",
    "dense_part",
    "dropout_part",
    "flatten",
    "network_of",
    "pooling",
    "residual",
]
