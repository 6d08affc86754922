"""Settings of chains from measured curvature and gradient noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.operators import OperatorParams
from curvflow.schemas.kinds.shared.sampling import LlcParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.network_operators import problem_of
from curvflow.tasks.curvature.operators import tile_operator
from curvflow.tasks.llc.calibration_sweep import confirmed
from curvflow.tasks.llc.chain_settings import EXACT, Setting, nbeta_of
from curvflow.tasks.llc.targets import Ground, params_of
from curvflow.tasks.numerics.derivatives.variances import gradient_variance
from curvflow.tasks.numerics.estimators.traces import Estimate, random_vectors
from curvflow.tasks.numerics.krylov.lanczos import RitzData, lanczos
from curvflow.tasks.numerics.sampling import calibration
from curvflow.tasks.numerics.sampling.methods import find
from curvflow.tasks.numerics.streams import stream

# Samples whose gradients are compared, most, and places about the weights where they
# are.
COMPARED, PLACES = 256, 4

# Numbers that their gradients may hold in one pass for one member.
PASS_NUMBERS = 1 << 20


def gradient_noise(ground: Ground, coefficient_M: Tensor, steep_M: Tensor) -> Tensor:
    """Return S^2, the variance of single samples' gradients about the weights, (M,).

    At weights that fit every sample it is zero, and at the draws it is not. It is the
    mean over places in random directions where nbeta L has risen by the coefficient,
    as it has at the draws.

    Args:
        ground: the members.
        coefficient_M: predicted.
        steep_M: nbeta times the curvature met.

    Returns:
        S^2 over the directions that move, in double precision on the CPU.
    """
    reach_M = (2 * coefficient_M / steep_M).sqrt()
    places = PLACES * list(range(len(ground.members)))
    directions = ground.directions(places).chunk(PLACES)
    away = [reach_M[:, None].to(one) * one for one in directions]
    return torch.stack([_variance(ground, one) for one in away]).mean(0)


def _variance(ground: Ground, away_MD: Tensor) -> Tensor:
    problem, count = problem_of(ground.members[0]), ground.samples.count
    used = min(COMPARED, count)
    rows_Mn = torch.stack(
        [
            torch.randperm(count, generator=stream(params_of(one).seed, "compared"))
            for one in ground.members
        ]
    )[:, :used]
    taken = ground.samples.taken(rows_Mn.to(ground.weights.device))
    found = gradient_variance(
        problem.losses,
        ground.weights + away_MD,
        taken.inputs,
        taken.targets,
        sizes=problem.network.layout.sizes,
        num_samples=count,
        fixed_MS=ground.statistics,
        samples_per_pass=max(1, min(64, PASS_NUMBERS // ground.weights.shape[1])),
    )
    first_L = torch.tensor([0, *problem.network.layout.sizes]).cumsum(0)[:-1]
    variance_ML = found.layer_variance.cpu().double()
    if ground.free is not None:
        variance_ML *= ground.free.cpu()[first_L]
    return variance_ML.sum(1)


# Up to so many samples a step over all the data is taken to be affordable.
FULL_DATA = 4096

# Lanczos runs of the calibration, and their steps.
RUNS, STEPS = 8, 30

# Steps of burn-in, most.
MOST_BURNIN = 4096


@dataclass(frozen=True)
class _Measured:
    ritz: RitzData
    met: Tensor  # curvature met, (M,)
    scales: calibration.Scales
    nbeta: Tensor  # (M,)


def spectrum_bytes(member: Member) -> int:
    """Return the estimated peak memory of measuring one member's spectrum."""
    problem = problem_of(member)
    size = problem.network.num_parameters
    # The basis and a few blocks of vectors, in double precision.
    bases = 8 * RUNS * size * (min(STEPS, size) + 10)
    return problem.product_bytes(member.one("data"), RUNS) + bases


def calibrated(ground: Ground) -> list[Setting]:
    """Find for every member what its parameters leave open.

    Args:
        ground: the members, their weights and data.

    Returns:
        Settings with all that was measured and tried.

    Raises:
        InputError: weights or products hold NaN or infinity.
    """
    params = [params_of(member) for member in ground.members]
    count = ground.samples.count
    one = params[0]
    takes_batches = one.batch_size is not None or one.at_draws != "full"
    affordable = count <= FULL_DATA and not takes_batches
    method = one.sampling_method or (EXACT if affordable else "sgld")
    nbeta_M = _tensor(nbeta_of(each, count) for each in params)
    ritz, met_M = _spectrum(ground), _met(ground, nbeta_M)
    measured = _Measured(ritz, met_M, calibration.scales(ritz, met_M), nbeta_M)
    chosen = _chosen(ground, params, measured, method)
    return confirmed(
        ground,
        [
            _setting(ground, measured, chosen, method, number)
            for number in range(len(params))
        ],
    )


@dataclass(frozen=True)
class _Chosen:
    """Settings of all members, each (M,)."""

    localization: Tensor
    lr: Tensor
    num_burnin_steps: Tensor
    batch_size: Tensor  # the smallest that heats no more than it may
    variance: Tensor  # of single samples' gradients; NaN where none is needed
    regular: Estimate  # what the coefficient is if the minima are regular


def _chosen(
    ground: Ground, params: Sequence[LlcParams], measured: _Measured, method: str
) -> _Chosen:
    found, nbeta_M, ritz = measured.scales, measured.nbeta, measured.ritz
    walk, one = find(method), params[0]
    stride, most = calibration.stride_of(walk), walk.most_scale(one.damping)
    gamma_M = _unless_given(
        [one.localization for one in params],
        calibration.localization_for(
            found, nbeta_M, steps_bw_draws=one.num_steps_bw_draws, stride=stride
        ),
    )
    lr_M = calibration.lr_for(found, nbeta_M, gamma_M, stride=stride) / most
    lr_M = _unless_given([one.lr for one in params], lr_M)
    regular = calibration.predicted(ritz, nbeta_M, gamma_M)
    batch_M = torch.zeros_like(lr_M)
    variance_M = torch.full_like(lr_M, math.nan)
    if method != EXACT:
        variance_M = gradient_noise(ground, regular.mean, nbeta_M * measured.met)
        step_M = lr_M * most / (one.friction if walk.has_friction else 1)
        batch_M = calibration.batch_for(step_M, nbeta_M, variance_M, regular.mean)
    burnin_M = calibration.burnin_for(found, nbeta_M, stride=stride, most=MOST_BURNIN)
    return _Chosen(gamma_M, lr_M, burnin_M, batch_M, variance_M, regular)


def _setting(
    ground: Ground, measured: _Measured, chosen: _Chosen, method: str, number: int
) -> Setting:
    """Return the setting of one member."""
    params = params_of(ground.members[number])
    batch_size = params.batch_size
    if batch_size is None and method != EXACT:
        batch_size = _rounded(float(chosen.batch_size[number]), ground.samples.count)
    return Setting(
        method,
        float(measured.nbeta[number]),
        float(chosen.lr[number]),
        float(chosen.localization[number]),
        batch_size,
        _burnin(params, int(chosen.num_burnin_steps[number])),
        told={
            "predicted": chosen.regular.mean[number].numpy(),
            "predicted_sem": chosen.regular.sem[number].numpy(),
            "largest_eigenvalue": measured.scales.largest[number].numpy(),
            "smallest_eigenvalue": measured.scales.smallest[number].numpy(),
            "typical_curvature": measured.scales.typical[number].numpy(),
            "gradient_variance": chosen.variance[number].numpy(),
            "ritz_values": measured.ritz.values[number].numpy(),
            "ritz_weights": measured.ritz.weights[number].numpy(),
        },
        work=_work(measured, number, is_noisy=method != EXACT),
    )


def _burnin(params: LlcParams, steps: int) -> int:
    """Round up to a power of 2, so that members can walk together."""
    if params.num_burnin_steps is not None:
        return params.num_burnin_steps
    return 1 << (steps - 1).bit_length()


def _rounded(batch_size: float, num_samples: int) -> int | None:
    """Round up to a power of 2 from 32 on; all data where it is near to that."""
    size = max(32, 1 << math.ceil(math.log2(max(1.0, batch_size))))
    return size if 2 * size <= num_samples else None


def _work(measured: _Measured, number: int, *, is_noisy: bool) -> float:
    """Count a product with the Hessian as two gradients, a loss as a third of one."""
    products = 2 * int(measured.ritz.steps[number].sum())
    return products + 10 * RUNS / 3 + is_noisy


def _unless_given(values: Sequence[float | None], found_M: Tensor) -> Tensor:
    chosen = zip(values, found_M.tolist(), strict=True)
    return _tensor(one if value is None else value for value, one in chosen)


def _tensor(values: Iterable[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)


def _spectrum(ground: Ground) -> RitzData:
    """Run Lanczos on the Hessian of what moves."""
    seen = [_as_probed(member) for member in ground.members]
    of = tile_operator(seen, ground.machine, columns=RUNS)
    seeds = [params_of(member).seed for member in ground.members]
    start = random_vectors(seeds, of.operator.shape[1], range(RUNS), "rademacher")
    return lanczos(of.operator, start, num_steps=STEPS)


def _as_probed(member: Member) -> Member:
    params = params_of(member)
    operator = OperatorParams(layers=params.layers, seed=params.seed)
    return replace(member, params=operator)


def _met(ground: Ground, nbeta_M: Tensor) -> Tensor:
    owner_C = torch.arange(len(ground.members)).repeat_interleave(RUNS)
    return calibration.curvature_met(
        ground.losses(owner_C.to(ground.weights.device)),
        ground.weights[owner_C],
        ground.directions(owner_C.tolist()),
        nbeta_M[owner_C],
        RUNS,
    )
