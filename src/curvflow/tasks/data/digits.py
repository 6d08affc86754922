"""The 8x8 handwritten digits that scikit-learn ships."""

from __future__ import annotations

from typing import cast

from sklearn.datasets import load_digits

from curvflow.schemas.kinds.data.digits import DigitsParams
from curvflow.schemas.kinds.shared.datasets import dataset, split
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.images import shuffled
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.digits")
def digits(member: Member, machine: Machine) -> Outcome:
    """Load the digits, scale their 17 grey levels to [0, 1] and split them.

    Args:
        member: the parameters.
        machine: not used.

    Returns:
        The data set; labels are the digits.

    Reference:
        Alpaydin and Kaynak (1998), doi:10.24432/C50P49, test part, as shipped by
        scikit-learn.
    """
    params = cast("DigitsParams", member.params)
    bunch = load_digits()
    arrays = {"inputs": bunch.data / 16, "targets": bunch.target}
    order = shuffled(len(bunch.target), params.seed)
    parts = split(arrays, order, params.num_test)
    kept = slice(params.num_train)
    parts["inputs"], parts["targets"] = parts["inputs"][kept], parts["targets"][kept]
    return Outcome(dataset(**parts))
