"""Quadratic losses, whose tempered posteriors are known in closed form."""

import torch

from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps, Stream
from curvflow.tasks.numerics.sampling.sample import sample

METHODS = [
    "adam_sgld",
    "mala",
    "multiscale_mala",
    "rmsprop_sgld",
    "sghmc",
    "sgld",
    "sgnht",
]
EXACT = ("mala", "multiscale_mala")
NBETA, GAMMA = 50.0, 2.0


class Bowl:
    """Mean over samples of a_n + y_n.w + 1/2 sum h w^2."""

    def __init__(self, h_D, slopes_ND, offsets_N):
        self.h_D, self.slopes_ND, self.offsets_N = h_D, slopes_ND, offsets_N

    @property
    def num_samples(self):
        return len(self.slopes_ND)

    def values(self, weights_CD, rows_CB):
        return self.gradients(weights_CD, rows_CB)[0]

    def gradients(self, weights_CD, rows_CB):
        rows = slice(None) if rows_CB is None else rows_CB
        slopes_D = self.slopes_ND[rows].mean(-2)
        offsets = self.offsets_N[rows].mean(-1)
        bent_CD = self.h_D * weights_CD
        losses_C = ((bent_CD / 2 + slopes_D) * weights_CD).sum(1) + offsets
        return losses_C, bent_CD + slopes_D


def bowl(*, spread=1.0, minimum=0.0, num_samples=64, dtype=torch.float64):
    """Six curvatures; slopes of exactly the given standard deviation."""
    h_D = torch.tensor([0.5, 0.6, 0.8, 1.0, 1.2, 1.5], dtype=dtype)
    source = torch.Generator().manual_seed(1)
    y_ND = torch.randn(num_samples, 6, generator=source, dtype=torch.float64)
    y_ND = (y_ND - y_ND.mean(0)) / y_ND.std(0, correction=0) * spread
    offsets_N = torch.rand(num_samples, generator=source, dtype=torch.float64)
    return Bowl(h_D, y_ND.to(dtype) - h_D * minimum, offsets_N.to(dtype))


def about_zero(losses, num_chains, *, free=None):
    """The posterior about weights of 0."""
    centre_CD = torch.zeros(num_chains, 6, dtype=losses.h_D.dtype)
    each_C = torch.ones_like(centre_CD[:, 0])
    return Posterior(losses, centre_CD, NBETA * each_C, GAMMA * each_C, free)


def curvatures(losses):
    """Of the energy, c."""
    return NBETA * losses.h_D + GAMMA


def sample_chains(posterior, method, stiffness=0.2, *, earlier=None, first=0, **how):
    """Sample with the largest lr c given; measures no acceptance unless asked to."""
    num_chains = len(posterior.centre)
    lr_C = torch.full((num_chains,), stiffness / (NBETA * 1.5 + GAMMA))
    how = {"num_draws": 30, "measure_acceptance": False, "keep_draws": True} | how
    streams = [Stream(0, first + chain) for chain in range(num_chains)]
    return sample(
        posterior, Steps(method, lr_C.double(), **how), streams, earlier=earlier
    )


def z_scores(values_CKD, expected):
    """Distance of means over chains from the expected ones, in standard errors."""
    means_CD = values_CKD.mean(1)
    sem_D = means_CD.std(0) / len(means_CD) ** 0.5
    return (means_CD.mean(0) - expected).abs() / sem_D
