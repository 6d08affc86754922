"""Diagnostics of chains, and the local learning coefficient that they give.

Letters: M members; C chains of each; K draws of each chain. A member with a value that
is not finite gets NaN; the caller leaves out the chains that failed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Quantiles of a slow coordinate between which values are averaged.
PARTS = 5


def r_hat(values_MCK: Tensor) -> Tensor:
    """Compare all halves of all chains: the rank-normalised split R-hat.

    Args:
        values_MCK: draws, at least 4 of each chain.

    Returns:
        That of level or of spread, the larger, (M,): near 1 if the halves look alike;
        infinity if each half is constant but they differ, NaN if all draws are equal.

    Reference:
        Vehtari et al. (2021), doi:10.1214/20-BA1221, section 3.
    """
    halves_MCK = _halves(values_MCK)
    middle_M11 = _quantile(halves_MCK, 0.5)[:, None, None]
    folded_MCK = (halves_MCK - middle_M11).abs()
    both = [_plain_r_hat(normal_scores(v)) for v in (halves_MCK, folded_MCK)]
    return _where_finite(values_MCK, torch.fmax(*both))


def ess_bulk(values_MCK: Tensor) -> Tensor:
    """Measure the effective number of draws in the bulk, by normal scores.

    Args:
        values_MCK: draws, at least 4 of each chain.

    Returns:
        Draws, (M,).

    Reference:
        Vehtari et al. (2021), doi:10.1214/20-BA1221, section 4.
    """
    return _where_finite(values_MCK, _ess(normal_scores(_halves(values_MCK))))


def ess_tail(values_MCK: Tensor) -> Tensor:
    """Measure the effective number of draws for the 5 and for the 95 % quantile.

    Args:
        values_MCK: draws, at least 4 of each chain.

    Returns:
        The lesser, (M,).

    Reference:
        Vehtari et al. (2021), doi:10.1214/20-BA1221, section 4.
    """
    both = []
    for share in (0.05, 0.95):
        below_MCK = values_MCK <= _quantile(values_MCK, share)[:, None, None]
        both.append(_ess(_halves(below_MCK.to(values_MCK.dtype))))
    return _where_finite(values_MCK, torch.minimum(*both))


def ess_mean(values_MCK: Tensor) -> Tensor:
    """Return the effective number of draws for the mean as it is, (M,).

    Args:
        values_MCK: draws, at least 4 of each chain.
    """
    return _where_finite(values_MCK, _ess(_halves(values_MCK)))


def mcse_mean(values_MCK: Tensor) -> Tensor:
    """Return the standard error of the mean over all chains, (M,).

    Args:
        values_MCK: draws, at least 4 of each chain; in their units.
    """
    return values_MCK.flatten(1).std(1) / ess_mean(values_MCK).sqrt()


def mcse_along(values_MCK: Tensor, along_MCK: Tensor) -> Tensor:
    """Return the error of a mean by a coordinate that moves slowly.

    Where the noise of the values hides how they follow the coordinate, their own
    autocorrelations end too early. Those of their means between quantiles of the
    coordinate do not, nor do those of the rest.

    Args:
        values_MCK: draws.
        along_MCK: the coordinate.

    Returns:
        Standard error of the mean, of both parts together, (M,).
    """
    order_MN = along_MCK.flatten(1).argsort(1).argsort(1)
    part_MN = order_MN * PARTS // order_MN.shape[1]
    flat_MN = values_MCK.flatten(1)
    sums_MP = flat_MN.new_zeros(len(flat_MN), PARTS).scatter_add(1, part_MN, flat_MN)
    counts_MP = torch.zeros_like(sums_MP).scatter_add(
        1, part_MN, torch.ones_like(flat_MN)
    )
    means_MN = (sums_MP / counts_MP).gather(1, part_MN)
    means_MCK = means_MN.view_as(values_MCK)
    return torch.hypot(mcse_mean(means_MCK), mcse_mean(values_MCK - means_MCK))


def geweke(values_MCK: Tensor, first: float = 0.1, last: float = 0.5) -> Tensor:
    """Return how far the first draws lie below the last, in standard errors, (M,).

    All chains start at one point, so a start that is not forgotten shows in the mean
    over the chains, and is tested there.

    Args:
        values_MCK: draws, at least 8 of each chain.
        first: share of the draws that is compared, from the start.
        last: the same, from the end.

    Returns:
        z, positive if values rise; NaN if all draws are equal.

    Reference:
        Geweke (1992), Bayesian Statistics 4, p. 169; here both variances are from the
        last draws, by `ess_mean`: a trend among the first would hide behind its own.
    """
    count = values_MCK.shape[2]
    early_MCK = values_MCK[..., : max(4, int(first * count))]
    late_MCK = values_MCK[..., -max(4, int(last * count)) :]
    rise_M = late_MCK.mean((1, 2)) - early_MCK.mean((1, 2))
    share = late_MCK.shape[2] / early_MCK.shape[2]
    return rise_M / (mcse_mean(late_MCK) * math.sqrt(1 + share))


def _where_finite(values_MCK: Tensor, statistic_M: Tensor) -> Tensor:
    finite_M = values_MCK.isfinite().flatten(1).all(1)
    return torch.where(finite_M, statistic_M, torch.nan)


def _halves(values_MCK: Tensor) -> Tensor:
    half = values_MCK.shape[2] // 2  # of an odd number, the middle draw is left out
    return torch.cat([values_MCK[..., :half], values_MCK[..., -half:]], 1)


def _quantile(values_MCK: Tensor, share: float) -> Tensor:
    ordered_MN = values_MCK.flatten(1).sort(1).values
    place = share * (ordered_MN.shape[1] - 1)
    below, above = ordered_MN[:, math.floor(place)], ordered_MN[:, math.ceil(place)]
    return torch.lerp(below, above, place - math.floor(place))


def normal_scores(values_MCK: Tensor) -> Tensor:
    """Return normal quantiles of the ranks (Blom 1958), of equal values the same."""
    flat_MN = values_MCK.flatten(1).contiguous()
    ordered_MN = flat_MN.sort(1).values
    fewer_MN = torch.searchsorted(ordered_MN, flat_MN)
    as_many_MN = torch.searchsorted(ordered_MN, flat_MN, right=True)
    rank_MN = (fewer_MN + as_many_MN + 1).to(flat_MN.dtype) / 2
    share_MN = (rank_MN - 3 / 8) / (flat_MN.shape[1] + 1 / 4)
    scores_MN: Tensor = torch.special.ndtri(share_MN)
    return scores_MN.view_as(values_MCK)


def _plain_r_hat(values_MCK: Tensor) -> Tensor:
    count = values_MCK.shape[2]
    between_M = values_MCK.mean(2).var(1)
    within_M = values_MCK.var(2).mean(1)
    return (between_M / within_M + (count - 1) / count).sqrt()


def _ess(values_MCK: Tensor) -> Tensor:
    """Return draws over their autocorrelation time, (M,)."""
    _, chains, count = values_MCK.shape
    size = chains * count
    cov_MK = _autocovariance(values_MCK).mean(1)
    within_M = cov_MK[:, 0] * count / (count - 1)
    total_M = cov_MK[:, 0] + (values_MCK.mean(2).var(1) if chains > 1 else 0.0)
    rho_MK = 1 - (within_M[:, None] - cov_MK) / total_M[:, None]
    rho_MK[:, 0] = 1.0
    time_M = _autocorrelation_time(rho_MK).clamp(min=1 / math.log10(size))
    constant_M = values_MCK.flatten(1).amax(1) == values_MCK.flatten(1).amin(1)
    return torch.where(constant_M, float(size), size / time_M)


def _autocorrelation_time(rho_MK: Tensor) -> Tensor:
    """Sum autocorrelations as far as Geyer's initial monotone sequence goes, (M,).

    Args:
        rho_MK: autocorrelations, of lag 0 first.

    Returns:
        1 + 2 (rho_1 + rho_2 + ...).

    Reference:
        Geyer (1992), doi:10.1214/ss/1177011137, section 3.3.
    """
    count = rho_MK.shape[1]
    pairs = max(1, (count - 1) // 2)  # the last lags have next to no products
    sums_MP = rho_MK[:, : 2 * pairs : 2] + rho_MK[:, 1 : 2 * pairs : 2]
    number_P = torch.arange(pairs)
    # The first pair that is not positive ends the sequence, or the last one there is.
    negative_MP = (sums_MP <= 0) | (number_P == pairs - 1)
    end_M1 = negative_MP.to(torch.int64).argmax(1, keepdim=True)
    falling_MP = sums_MP.cummin(1).values * (number_P < end_M1)
    rest_M = rho_MK.gather(1, 2 * end_M1)[:, 0]
    kept_M = (rest_M > 0) | (sums_MP.gather(1, end_M1)[:, 0] > 0)
    time_M: Tensor = -1 + 2 * falling_MP.sum(1) + rest_M * kept_M
    return time_M


def _autocovariance(values_MCK: Tensor) -> Tensor:
    """Return sums of products at each lag over K, (M, C, K), by the transform."""
    count = values_MCK.shape[2]
    centred_MCK = values_MCK - values_MCK.mean(2, keepdim=True)
    length = 2 ** math.ceil(math.log2(2 * count))  # no product wraps around
    power = torch.fft.rfft(centred_MCK, length).abs().square()
    cov_MCK: Tensor = torch.fft.irfft(power, length)[..., :count] / count
    return cov_MCK


@dataclass(frozen=True)
class Summary:
    """Estimate of the coefficient by the chains that did not fail.

    Attributes:
        llc_mean: nbeta (mean loss - loss at the weights); NaN if all failed.
        llc_std: standard deviation between the chains' estimates; NaN for one chain.
        llc_sem: standard error of `llc_mean`, from autocorrelated draws.
        llc_per_chain: estimate of each chain, NaN of one that failed, (C,).
        r_hat: of the losses.
        ess_bulk: effective number of draws, of the losses.
        ess_tail: the same for their tails.
        num_failed: chains that failed.
    """

    llc_mean: float
    llc_std: float
    llc_sem: float
    llc_per_chain: Tensor
    r_hat: float
    ess_bulk: float
    ess_tail: float
    num_failed: int


def summarise(
    losses_CK: Tensor, init_loss: float, nbeta: float, failed_at_C: Tensor
) -> Summary:
    """Estimate the local learning coefficient, nbeta (E L - L(w*)).

    Args:
        losses_CK: mean losses at the draws, at least 8 of each chain.
        init_loss: mean loss at the weights.
        nbeta: inverse temperature.
        failed_at_C: the step at which a chain failed, -1 if it did not.

    Returns:
        The estimate with its error, of the chains that did not fail.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 20.
    """
    failed_C = failed(losses_CK, failed_at_C)
    kept_1CK = losses_CK[~failed_C][None].double()
    llc_C = nbeta * (losses_CK.double().mean(1) - init_loss)
    llc_C = torch.where(failed_C, torch.nan, llc_C)
    left = int((~failed_C).sum())
    if not left:
        none = math.nan
        return Summary(none, none, none, llc_C, none, none, none, len(failed_C))
    return Summary(
        float(llc_C[~failed_C].mean()),
        float(llc_C[~failed_C].std()) if left > 1 else math.nan,
        nbeta * float(mcse_mean(kept_1CK)),
        llc_C,
        float(r_hat(kept_1CK)),
        float(ess_bulk(kept_1CK)),
        float(ess_tail(kept_1CK)),
        len(failed_C) - left,
    )


def failed(losses_CK: Tensor, failed_at_C: Tensor) -> Tensor:
    """Return which chains failed, (C,)."""
    return (failed_at_C >= 0) | ~losses_CK.isfinite().all(1)
