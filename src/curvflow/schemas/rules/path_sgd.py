"""Path-SGD."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


class PathSgd(Rule):
    """Steepest descent by the norm of the path vector, invariant to rescaling units."""

    rule: Literal["path_sgd"] = "path_sgd"
    lr: float = Field(gt=0, description="learning rate")
    p: float = Field(2.0, ge=1, description="power of the path norm")
    eps: float = Field(
        0.0, ge=0, description="least gamma; above 0 it ends the invariance"
    )

    def hyper(self) -> dict[str, float]:
        """Return the hyper-parameters by name, all but p."""
        return {n: v for n, v in super().hyper().items() if n != "p"}

    def choices(self) -> dict[str, Any]:
        """Return the shared choices, with p: one passage counts paths by one power."""
        return super().choices() | {"p": self.p}


RULE = PathSgd

EXPLANATION = Section(
    group="Path-SGD and natural gradients",
    summary="descends by the path norm, whatever the scale of the units",
    text="""\
w ← w − η g / γ, where γ of a parameter is (∂φ / ∂|w|ᵖ)^(2/p) and φ is the path norm
to the power `p`: the sum over all paths from an input or a bias to an output of the
product of |w|ᵖ along the path. So γ sums over the paths through a parameter what the
other parameters of these paths multiply to. φ and γ take the passage of one sample
and its derivative, whatever the batch.

The path norm does not change when the weights into a hidden unit are multiplied by c
and those out of it divided by c, nor does, with ReLU units, the function; training by
this rule does not see it either. A kernel's entry counts the paths through all the
places where it is used, and channels may be rescaled; averages count as fixed
weights, a maximum as a sum, a residual connection as a weight of 1. Dropout does not
enter γ.

A parameter that no path goes through has γ = 0 and stays where it is. `eps` > 0 is
the least γ; it bounds the step, and ends the invariance. A model with batch norm, or
one of your own, has no paths that can be summed, and is refused.
""",
    source="""\
Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617; for `p` other
than 2, Meng's slides (2019) give the exponent 2/p.
""",
    example="""\
axes:
  rule:
    path: {rule: path_sgd, lr: 0.01}
    l1_path: {rule: path_sgd, lr: 0.01, p: 1.0, eps: 0.0}
""",
)
