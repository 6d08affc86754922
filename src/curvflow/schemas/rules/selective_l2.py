"""Gradient descent with a decay of the weights that matter least."""

from __future__ import annotations

from typing import Literal

from curvflow.schemas.rules._selection import Selection


class SelectiveL2(Selection):
    """Gradient descent with a decay of the parameters whose entry of H w is small."""

    rule: Literal["selective_l2"] = "selective_l2"

    def product_from(self) -> int:
        """Return 0: every step needs H w."""
        return 0


RULE = SelectiveL2
