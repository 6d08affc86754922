"""Parts that networks are put together from, for a batch of models at once.

A part is told the shape of one sample that comes in, and then knows its tensors and
what it returns. What passes through has shape (M or 1, N, *that of a sample).
"""

from curvflow.tasks.parts.batch_norm import batch_norm
from curvflow.tasks.parts.convolution import convolution
from curvflow.tasks.parts.dense import dense_part
from curvflow.tasks.parts.images import check_images
from curvflow.tasks.parts.part import Part, Placed, chain, network_of, residual
from curvflow.tasks.parts.plain import activation, dropout_part, flatten
from curvflow.tasks.parts.pooling import pooling

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
