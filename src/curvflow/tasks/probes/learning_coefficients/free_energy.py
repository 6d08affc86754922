"""Free energies by draws and by the Hessian."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from torch import Tensor

from curvflow.schemas.kinds.probes.learning_coefficients.free_energy import (
    FreeEnergyParams,
)
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.ritz_data import functional_arrays
from curvflow.tasks.llc.draws import (
    energies,
    is_wbic,
    localization,
    negative_mass,
    number,
    posterior_of,
    ritz_of,
)
from curvflow.tasks.numerics.krylov.functionals import (
    Bernstein,
    bounded,
    steps_needed,
)
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.free_energy")
def free_energy(member: Member, machine: Machine) -> Outcome:
    """Estimate minus the log of the evidence, the integral of prior times e^(-n L).

    With the prior N(w*, 1 / a) and a quadratic loss it is, after Laplace, exactly
    n L + log det(1 + n H / a) / 2. WBIC is its estimate by draws with a = localization.
    BIC, n L + d / 2 ln n, and Watanabe's n L + llc ln n leave out what does not grow
    with n, the prior among it, and the multiplicity's (m - 1) ln ln n.

    Args:
        member: `draws` and `ritz`.
        machine: not used.

    Returns:
        Each in nats, with standard errors.

    Raises:
        InputError: the draws have no localization, and no prior precision is given; or
            the Hessian is of other parameters.

    Reference:
        Schwarz (1978), doi:10.1214/aos/1176344136; MacKay (1992),
        doi:10.1162/neco.1992.4.3.415; Watanabe (2013), JMLR 14, 867.
    """
    params, draws = cast("FreeEnergyParams", member.params), member.one("draws")
    ritz = ritz_of(member)
    count = number(draws, "num_samples")
    precision = params.prior_precision or localization(draws)

    def volume(values: Tensor) -> Tensor:
        return (count / precision * values).log1p() / 2

    half = Bernstein(volume, pole=-precision / count)
    bounds = bounded(ritz, half)
    training = count * number(draws, "init_loss")
    laplace = functional_arrays(
        "laplace",
        bounds.of_model(0),
        steps_needed(bounds, ritz, half, None)[0],
        flag="laplace_converged",
    )
    for name in ("laplace", "laplace_low", "laplace_high"):
        laplace[name] = laplace[name] + training
    numbers = {
        "training_loss": training,
        "watanabe": training + number(draws, "llc_mean") * math.log(count),
        "watanabe_sem": number(draws, "llc_sem") * math.log(count),
        "bic": training + ritz.size / 2 * math.log(count),
        "prior_precision": precision,
        "negative_mass": negative_mass(ritz),
    }
    if is_wbic(draws):
        mean, _ = energies(draws)
        numbers |= {"wbic": mean.value, "wbic_sem": mean.sem}
    return Outcome(
        {
            **{name: np.array(value) for name, value in numbers.items()},
            **laplace,
            "num_samples": np.array(draws["num_samples"], dtype=np.int64),
            "num_parameters": np.array(ritz.size, dtype=np.int64),
            **posterior_of(draws),
            "verdict": np.array(draws["verdict"]),
        }
    )
