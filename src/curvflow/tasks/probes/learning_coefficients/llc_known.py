"""Coefficients of known posteriors, compared with those of draws."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.learning_coefficients.llc_known import LlcKnownParams
from curvflow.schemas.kinds.shared.known_answers import known
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.models.normal_crossing import NormalCrossing
from curvflow.schemas.models.quadratic_well import QuadraticWell
from curvflow.schemas.nodes import Member, NodeData, Outcome
from curvflow.tasks.datasets.known_answers import true_weights
from curvflow.tasks.llc.draws import localization, number, posterior_of
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics.sampling.known_coefficients import (
    crossing_coefficient,
    product_coefficient,
    well_coefficient,
)
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.llc_known")
def llc_known(member: Member, machine: Machine) -> Outcome:
    """Find the coefficient of a known posterior without a chain of a sampler.

    Args:
        member: `draws`, whose nbeta and localization are taken, and `data`.
        machine: not used.

    Returns:
        The coefficient, with the standard error of deep_linear's Gibbs sampler.

    Raises:
        InputError: the draws have no localization, or the targets of a model whose
            truth is 0 are not.
    """
    params = cast("LlcKnownParams", member.params)
    draws, data = member.one("draws"), member.one("data")
    nbeta, gamma = number(draws, "nbeta"), localization(draws)
    model, error = known(params), 0.0
    if isinstance(model, DeepLinear):
        value, error = _product(params, model, data, nbeta, gamma)
    else:
        _refuse_noise(data)
    if isinstance(model, NormalCrossing):
        value = sum(crossing_coefficient(each, nbeta, gamma) for each in model.powers)
    elif isinstance(model, QuadraticWell):
        value = well_coefficient(model.eigenvalues, nbeta, gamma)
    return Outcome(
        {
            "llc_known": np.array(value),
            "llc_known_sem": np.array(error),
            **posterior_of(draws),
        }
    )


def _refuse_noise(data: NodeData) -> None:
    if np.any(data["targets"]):
        raise InputError(
            "data: expected targets 0, of the truth without noise, got others. Set "
            "noise to 0."
        )


def _product(
    params: LlcKnownParams,
    model: DeepLinear,
    data: NodeData,
    nbeta: float,
    localization: float,
) -> tuple[float, float]:
    inputs_NI, targets_NO = (
        torch.as_tensor(data[name], dtype=torch.float64)
        for name in ("inputs", "targets")
    )
    layout = pose(model, "sse", data).network.layout
    weights = torch.as_tensor(true_weights(model, layout, params.rank))
    each = torch.split(weights, list(layout.sizes))
    factors = [w.view(shape) for w, shape in zip(each, layout.shapes, strict=True)]
    count = len(inputs_NI)
    return product_coefficient(
        factors,
        inputs_NI.mT @ inputs_NI / count,
        targets_NO.mT @ inputs_NI / count,
        nbeta,
        localization,
        seed=params.seed,
    )
