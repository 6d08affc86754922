"""How long the steps of an epoch are on average, without the learning rate."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class StepNorms:
    """The mean over an epoch's steps of ||w' - w|| / lr, of M models.

    For sgd without momentum it is the mean norm of the batches' gradients, for ngd
    that of the preconditioned ones.
    """

    def __init__(self, like_MD: Tensor) -> None:
        """Begin an epoch; take weights of the number and device of the models'."""
        self._sum_M = like_MD.new_zeros(len(like_MD), dtype=torch.float64)
        self._count = torch.zeros((), dtype=torch.int64)

    def begin(self) -> None:
        """Turn to the next epoch."""
        self._sum_M = torch.zeros_like(self._sum_M)
        self._count = torch.zeros_like(self._count)

    def add(self, change_MD: Tensor, rate_M: Tensor) -> None:
        """Take one step: the change of the weights, and the learning rates."""
        lengths_M = change_MD.norm(dim=1).double()
        self._sum_M = self._sum_M + lengths_M / rate_M.to(self._sum_M)
        self._count = self._count + 1

    def mean(self) -> Tensor:
        """Return the mean of the steps so far, (M,); NaN before the first."""
        count = int(self._count)
        return self._sum_M / count if count else torch.full_like(self._sum_M, torch.nan)

    def tensors(self) -> dict[str, Tensor]:
        """Return the sum and number of the steps so far."""
        return {"sum": self._sum_M, "count": self._count}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to an earlier sum."""
        self._sum_M, self._count = tensors["sum"], tensors["count"]
