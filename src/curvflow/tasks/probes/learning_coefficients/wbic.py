"""The widely applicable Bayesian information criterion of draws."""

from __future__ import annotations

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.llc.draws import is_wbic, number, wbic_arrays
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.wbic")
def wbic(member: Member, machine: Machine) -> Outcome:
    """Average the loss of all samples over the posterior at nbeta = n / ln n.

    The posterior is localised about the weights, so this is the criterion with the
    prior N(w*, 1 / localization).

    Args:
        member: `draws`, at that temperature.
        machine: not used.

    Returns:
        n E L with its standard error, in nats.

    Raises:
        InputError: the draws are of another temperature.

    Reference:
        Watanabe (2013), JMLR 14, 867: definition of WBIC and theorem 4.
    """
    draws = member.one("draws")
    if not is_wbic(draws):
        count = number(draws, "num_samples")
        raise InputError(
            f"draws: expected nbeta n / ln n, {count / np.log(count):.6g} of "
            f"{count:.0f} samples, got {number(draws, 'nbeta'):.6g}. Set nbeta of "
            f"'{draws.stage}' to auto."
        )
    return Outcome(wbic_arrays(draws))
