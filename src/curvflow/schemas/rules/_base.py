"""What every learning rule has."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.networks import Init
from curvflow.schemas.params import Params


class Rule(Params):
    """Base of the rules; a field that is a number or a flag is a hyper-parameter.

    Each rule narrows `rule` to a literal equal to its file's name.
    """

    rule: str
    init: Init | None = Field(
        None, description="law of the initial weights; null takes the model's"
    )

    @property
    def is_extendable(self) -> bool:
        """Whether longer training begins as shorter training does.

        True for constant and epoch-wise schedules. A rule with a schedule over the
        whole length, such as a cosine, overrides this; then more epochs mean training
        from the beginning.
        """
        return True

    def hyper(self) -> dict[str, float]:
        """Return the hyper-parameters by name, flags as 0 and 1."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return {n: float(v) for n, v in fields.items() if isinstance(v, int | float)}
