"""Laws of targets, given outputs, whose negative logarithm is the loss of a sample.

A law draws targets and knows the Fisher matrix of the outputs, S'S, by its roots S: of
all targets by their probability, of some drawn, or of the data's own.

A loss that is the mean over the values of a target is of no single law: each value has
its own, and the Fisher matrix is the mean of theirs, as over the tokens of a sample. It
is the Hessian of that mean where the outputs are natural parameters. Squared errors are
a Gaussian of variance C/2 for `mse` and 1/2 for `sse`, whose matrices are the same.

Letters in addition to those of the package: R rows of a root, V values of a target, K
components of a mixture, P values of a Bernoulli target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.batches import LOSSES, SampleLoss

FisherForm = Literal["sampled", "empirical", "exact"]
Reduction = Literal["mean", "sum"]

# From form, outputs (M, N, C), targets and uniform numbers (M, N, R, ...) to the roots.
Roots = Callable[[FisherForm, Tensor, Tensor, Tensor | None], Tensor]

# Deviations of a Poisson law beyond which, and counts above its rate within which, it
# has less than 2^-53 of its probability, the least that a uniform number tells.
_DEVIATIONS, _COUNTS = 9.0, 40.0

# Halvings that reach one count of any rate of which counts are exact numbers.
_MOST_HALVINGS = 60


@dataclass(frozen=True)
class OutputLaw:
    """The law of a sample's targets, given its outputs.

    Attributes:
        name: of the loss, for messages.
        losses: the loss of each sample, from outputs (M, N, C) or (M, N, T, C), and
            targets, to (M, N).
        uniforms: from C to the shape of the uniform numbers of one draw.
        roots: S of each term, (M, N, R, C).
        depends_on_targets: the Hessian of the loss by the outputs does; it is then not
            the Fisher matrix, but has it for its mean, and may be indefinite.
        weighs_terms: targets are pairs of a label and its weight, and the loss of a
            sample is the sum over its terms, else their mean.
        lacks_one: the exact matrix has a rank of C - 1 at most: it does not change
            where all outputs move together.
        variances: from outputs (M, N, C) to the diagonal of the exact matrix, (M, N,
            C), of a law whose matrix is diagonal; None of others.
    """

    name: str
    losses: SampleLoss
    uniforms: Callable[[int], tuple[int, ...]]
    roots: Roots
    depends_on_targets: bool = False
    weighs_terms: bool = False
    lacks_one: bool = False
    variances: Callable[[Tensor], Tensor] | None = None


def law_of(loss: str | OutputLaw) -> OutputLaw:
    """Return a law itself, or that of a name.

    Args:
        loss: a name of `LAWS`, or a law.

    Returns:
        The law.

    Raises:
        InputError: there is no law of this name.
    """
    law = LAWS.get(loss) if isinstance(loss, str) else loss
    if law is None:
        raise InputError(
            f"loss: expected one of {', '.join(LAWS)}, got {loss}. Name one of them."
        )
    return law


def _softmax_roots(
    form: FisherForm, outputs_MNC: Tensor, targets: Tensor, uniform_MNR: Tensor | None
) -> Tensor:
    classes = outputs_MNC.shape[-1]
    chances_MNC = outputs_MNC.softmax(-1)
    if form == "exact":
        labels = _eye(classes, chances_MNC)
        surprises = labels - chances_MNC.unsqueeze(2)
        return chances_MNC.sqrt().unsqueeze(3) * surprises
    if uniform_MNR is None:
        given = targets.expand(chances_MNC.shape[:2]).unsqueeze(2)
        return chances_MNC.unsqueeze(2) - F.one_hot(given, classes).to(chances_MNC)
    # All but the last bound, which rounding may leave below 1.
    bounds = chances_MNC.cumsum(-1)[:, :, None, :-1]
    drawn = (uniform_MNR.unsqueeze(3) >= bounds).sum(-1, keepdim=True)
    labels = drawn == torch.arange(classes, device=drawn.device)
    rows = chances_MNC.unsqueeze(2) - labels.to(chances_MNC)
    draws = drawn.shape[2]
    return rows if draws == 1 else rows / math.sqrt(draws)


def fewest_roots(law: OutputLaw, outputs_MNC: Tensor, targets: Tensor) -> Tensor:
    """Return rows S of the exact matrix S'S of a law, as few as are known to do.

    Rows of the softmax, one of each label, are orthogonal to the roots of probabilities
    p: (p^1/2)' S = 0. A reflection that turns p^1/2 into the first unit vector leaves
    S'S as it is, and makes the first row 0, which is left out.

    Args:
        law: of the targets.
        outputs_MNC: of the models.
        targets: of the samples.

    Returns:
        Rows (M, N, R, C).

    Reference:
        Householder (1958), doi:10.1145/320941.320947.
    """
    roots = law.roots("exact", outputs_MNC, targets, None)
    if not law.lacks_one or roots.shape[2] < 2:
        return roots
    first, others = roots[:, :, :1], roots[:, :, 1:]
    along_MNC1 = outputs_MNC.softmax(-1).sqrt().unsqueeze(3)
    shares = along_MNC1[:, :, 1:] / (1 + along_MNC1[:, :, :1])
    return others - shares * first


def _counted_roots(
    form: FisherForm, outputs_MNC: Tensor, pairs: Tensor, uniform_MNR: Tensor | None
) -> Tensor:
    labels, weights = pairs[..., 0].long(), pairs[..., 1]
    rows = _softmax_roots(form, outputs_MNC, labels, uniform_MNR)
    factors = weights if form == "empirical" else weights.sqrt()
    return factors[..., None, None] * rows


def _squared(name: str, reduction: Reduction) -> OutputLaw:
    """Return the law of the squared error of a name."""

    def variances(outputs_MNC: Tensor) -> Tensor:
        outputs = outputs_MNC.shape[-1]
        share = 2 / outputs if reduction == "mean" else 2.0
        return torch.full_like(outputs_MNC, share)

    law = _named(name, _pairs, _squared_roots(reduction))
    return replace(law, variances=variances)


def _squared_roots(reduction: Reduction) -> Roots:
    def roots(
        form: FisherForm, outputs_MNC: Tensor, targets: Tensor, uniform: Tensor | None
    ) -> Tensor:
        outputs = outputs_MNC.shape[-1]
        # 1 / variance.
        sharpness = 2 / outputs if reduction == "mean" else 2.0
        if form == "exact":
            eye = math.sqrt(sharpness) * _eye(outputs, outputs_MNC)
            return eye.expand(*outputs_MNC.shape, outputs)
        if uniform is None:
            return sharpness * (outputs_MNC - targets).unsqueeze(2)
        normal_MNRC = _normal(uniform)
        return math.sqrt(sharpness / normal_MNRC.shape[2]) * normal_MNRC

    return roots


def _normal(uniform: Tensor) -> Tensor:
    """Return normal numbers from pairs of uniform ones (Box and Muller 1958)."""
    radius = (-2 * (1 - uniform[..., 0]).log()).sqrt()  # 1 - u > 0
    return radius * (2 * math.pi * uniform[..., 1]).cos()


def _eye(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class _Scored:
    """Roots by the gradient of -log p by the outputs, of a target's values together.

    Attributes:
        gradient: from outputs (M, N, 1, C) and targets (M, N, R, V) to (M, N, R, C).
        draw: from outputs (M, N, 1, C) and uniform numbers to targets (M, N, R, V).
        exact: from outputs (M, N, C) to rows (M, N, R, C).
        values: from C to the number of values whose losses are averaged.
    """

    gradient: Callable[[Tensor, Tensor], Tensor]
    draw: Callable[[Tensor, Tensor], Tensor]
    exact: Callable[[Tensor], Tensor]
    values: Callable[[int], int]

    def __call__(
        self,
        form: FisherForm,
        outputs_MNC: Tensor,
        targets: Tensor,
        uniform: Tensor | None,
    ) -> Tensor:
        values = self.values(outputs_MNC.shape[-1])
        if form == "exact":
            return self.exact(outputs_MNC) / math.sqrt(values)
        each = outputs_MNC.unsqueeze(2)
        if uniform is None:
            return self.gradient(each, targets.unsqueeze(2)) / values
        drawn = self.draw(each, uniform).to(outputs_MNC)
        rows = self.gradient(each, drawn)
        return rows / math.sqrt(values * rows.shape[2])


def _one(_outputs: int) -> int:
    return 1


def _each(outputs: int) -> int:
    return outputs


def _half(outputs: int) -> int:
    return outputs // 2


def _reduced(values: Tensor, reduction: Reduction) -> Tensor:
    """Return the losses of samples, (M, N), from those of values, (M, N, ..., V)."""
    if reduction == "mean":
        return values.flatten(2).mean(2)
    return _over_terms(values.sum(-1))


def _over_terms(losses: Tensor) -> Tensor:
    return losses if losses.ndim == 2 else losses.flatten(2).mean(2)


def bernoulli(reduction: Reduction = "mean") -> OutputLaw:
    """Return the law of independent values 0 and 1, by their logits."""

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = targets * F.logsigmoid(outputs)
        return -_reduced(losses + (1 - targets) * F.logsigmoid(-outputs), reduction)

    def spread(outputs_MNC: Tensor) -> Tensor:
        # The chances of both, neither of which is taken from 1.
        return outputs_MNC.sigmoid() * (-outputs_MNC).sigmoid()

    values = _each if reduction == "mean" else _one
    return OutputLaw(
        "bce",
        losses,
        lambda outputs: (outputs,),
        _Scored(
            gradient=lambda outputs, targets: outputs.sigmoid() - targets,
            draw=lambda outputs, uniform: uniform < outputs.sigmoid(),
            exact=lambda outputs: torch.diag_embed(spread(outputs).sqrt()),
            values=values,
        ),
        variances=lambda outputs: spread(outputs) / values(outputs.shape[-1]),
    )


def poisson(reduction: Reduction = "mean") -> OutputLaw:
    """Return the law of independent counts, by the logarithms of their rates."""

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        return _reduced(outputs.exp() - targets * outputs, reduction)

    values = _each if reduction == "mean" else _one
    return OutputLaw(
        "poisson",
        losses,
        lambda outputs: (outputs,),
        _Scored(
            gradient=lambda outputs, targets: outputs.exp() - targets,
            draw=lambda outputs, uniform: poisson_counts(outputs.exp(), uniform),
            exact=lambda outputs: torch.diag_embed((outputs / 2).exp()),
            values=values,
        ),
        variances=lambda outputs: outputs.exp() / values(outputs.shape[-1]),
    )


def poisson_counts(rates: Tensor, uniform: Tensor) -> Tensor:
    """Return the least counts whose cumulative probability exceeds a uniform number.

    Exact but for counts beyond 9 deviations on either side, and 40 more above: they
    have less than 2^-53 of the probability.

    Args:
        rates: of a shape that expands to that of `uniform`.
        uniform: in [0, 1).

    Returns:
        Counts in double precision; NaN where a rate is not finite.
    """
    rates = rates.double().expand_as(uniform)
    spread = _DEVIATIONS * rates.sqrt()
    low = (rates - spread).floor().clamp(min=0) - 1  # not yet beyond the number
    high = (rates + spread + _COUNTS).ceil()
    for _ in range(_halvings(high - low)):
        middle = ((low + high) / 2).floor()
        is_beyond = torch.special.gammaincc(middle + 1, rates) > uniform
        low = torch.where(is_beyond, low, middle)
        high = torch.where(is_beyond, middle, high)
    return high.masked_fill(~rates.isfinite(), torch.nan)


def _halvings(widths: Tensor) -> int:
    if widths.is_meta or not widths.numel():
        return 1
    widest = float(widths.nan_to_num(0.0, posinf=0.0).max())
    return min(_MOST_HALVINGS, math.ceil(math.log2(max(widest, 2.0))))


def gaussian(reduction: Reduction = "mean") -> OutputLaw:
    """Return the law of independent values by means, then logarithms of variances."""

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        means, logs = outputs.chunk(2, -1)
        squares = (targets - means).square() * (-logs).exp()
        return _reduced(0.5 * (logs + squares), reduction)

    def gradient(outputs: Tensor, targets: Tensor) -> Tensor:
        means, logs = outputs.chunk(2, -1)
        errors = means - targets
        by_means = errors * (-logs).exp()
        return torch.cat([by_means, 0.5 * (1 - errors * by_means)], -1)

    def draw(outputs: Tensor, uniform: Tensor) -> Tensor:
        means, logs = outputs.chunk(2, -1)
        return means + (logs / 2).exp() * _normal(uniform)

    def exact(outputs_MNC: Tensor) -> Tensor:
        _, logs = outputs_MNC.chunk(2, -1)
        by_logs = torch.full_like(logs, math.sqrt(0.5))
        return torch.diag_embed(torch.cat([(-logs / 2).exp(), by_logs], -1))

    return OutputLaw(
        "gaussian",
        losses,
        lambda outputs: (outputs // 2, 2),
        _Scored(gradient, draw, exact, _half if reduction == "mean" else _one),
        depends_on_targets=True,
    )


@dataclass(frozen=True)
class _Mixture:
    """Components of independent values 0 and 1, and their weights.

    Outputs are the logits of the K weights, then those of the P values of the first
    component, of the second, and so on.

    Attributes:
        components: K.
    """

    components: int

    def values(self, outputs: int) -> int:
        """Return P."""
        return outputs // self.components - 1

    def logits(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the weights, (..., K), and values, (..., K, P)."""
        weights = outputs[..., : self.components]
        shape = (*outputs.shape[:-1], self.components, self.values(outputs.shape[-1]))
        return weights, outputs[..., self.components :].reshape(shape)

    def joint(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return log of the probability of component and target, (..., K)."""
        weights, values = self.logits(outputs)
        target = targets.unsqueeze(-2)
        logs = target * F.logsigmoid(values) + (1 - target) * F.logsigmoid(-values)
        return weights.log_softmax(-1) + logs.sum(-1)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return -log of the probability of the targets, (M, N)."""
        return -_over_terms(self.joint(outputs, targets).logsumexp(-1))

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return that by the outputs, of the shape of both broadcast."""
        weights, values = self.logits(outputs)
        shares = self.joint(outputs, targets).softmax(-1)  # given the target
        by_values = shares.unsqueeze(-1) * (values.sigmoid() - targets.unsqueeze(-2))
        return torch.cat([weights.softmax(-1) - shares, by_values.flatten(-2)], -1)

    def draw(self, outputs: Tensor, uniform: Tensor) -> Tensor:
        """Return targets: a component first, and the values by it."""
        weights, values = self.logits(outputs)
        bounds = weights.softmax(-1).cumsum(-1)[..., :-1]
        chosen = (uniform[..., :1] >= bounds).sum(-1)
        places = chosen[..., None, None].expand(*chosen.shape, 1, values.shape[-1])
        whole = values.expand(*chosen.shape, *values.shape[-2:])
        return uniform[..., 1:] < whole.gather(-2, places).squeeze(-2).sigmoid()

    def exact(self, outputs_MNC: Tensor) -> Tensor:
        """Return a row of each possible target.

        Raises:
            InputError: there are more targets than outputs.
        """
        outputs = outputs_MNC.shape[-1]
        values = self.values(outputs)
        if 2**values > outputs:
            raise InputError(
                "loss: expected as many possible targets as outputs at most for the "
                f"exact Fisher matrix of mixture_bernoulli, {outputs}, got {values} "
                "values of 0 and 1. Take labels drawn from the model."
            )
        kinds = torch.arange(2**values, device=outputs_MNC.device)
        digits = torch.arange(values, device=outputs_MNC.device)
        targets_RP = (kinds[:, None] >> digits & 1).to(outputs_MNC)
        each = outputs_MNC.unsqueeze(2)
        chances_MNR = self.joint(each, targets_RP).logsumexp(-1).exp()
        return chances_MNR.sqrt().unsqueeze(-1) * self.gradient(each, targets_RP)


def mixture_bernoulli(components: int = 2) -> OutputLaw:
    """Return the law of a mixture of independent values 0 and 1.

    Args:
        components: K. Outputs are K logits of the weights, then P of each component.

    Returns:
        The law; its exact matrix is summed over the targets, refused where these are
        more than the outputs.

    Reference:
        Botev (2020), Eq. (4.28), whose two components have one logit of their weights.
    """
    mixture = _Mixture(components)
    return OutputLaw(
        "mixture_bernoulli",
        mixture.losses,
        lambda outputs: (mixture.values(outputs) + 1,),
        _Scored(mixture.gradient, mixture.draw, mixture.exact, _one),
        depends_on_targets=True,
    )


def mixture_means(components: int, outputs: Tensor) -> Tensor:
    """Return the expected targets of a mixture, (..., P).

    Args:
        components: K.
        outputs: (..., K (P + 1)).
    """
    weights, values = _Mixture(components).logits(outputs)
    return (weights.softmax(-1).unsqueeze(-1) * values.sigmoid()).sum(-2)


def counted_labels(losses: SampleLoss) -> OutputLaw:
    """Return the law of labels that come with weights, 0 of those that do not count.

    Args:
        losses: the cross entropy, of targets (..., 2), a label and its weight.
    """
    return OutputLaw(
        "cross_entropy",
        losses,
        lambda _: (),
        _counted_roots,
        weighs_terms=True,
        lacks_one=True,
    )


def _pairs(outputs: int) -> tuple[int, ...]:
    return (outputs, 2)


def _named(
    name: str, uniforms: Callable[[int], tuple[int, ...]], roots: Roots
) -> OutputLaw:
    return OutputLaw(name, LOSSES[name], uniforms, roots)


LAWS = {
    law.name: law
    for law in (
        replace(_named("cross_entropy", lambda _: (), _softmax_roots), lacks_one=True),
        _squared("mse", "mean"),
        _squared("sse", "sum"),
        bernoulli(),
        poisson(),
        gaussian(),
        mixture_bernoulli(),
    )
}


def sample_losses(name: str) -> SampleLoss:
    """Return the loss of each sample as a function of outputs and targets.

    Args:
        name: `cross_entropy` of the softmax, `mse` (squared error, mean over outputs)
            or `sse` (squared error, sum over outputs); `bce` of logits, `poisson` of
            logarithms of rates, `gaussian` of means and logarithms of variances (means
            over values), or `mixture_bernoulli` of two components.

    Returns:
        A function of outputs (M, N, C) and targets, labels (M or 1, N) or values
        (M or 1, N, V), that returns losses (M, N); of outputs (M, N, T, C) and labels
        of tokens (M or 1, N, T) the mean over the tokens.

    Raises:
        InputError: there is no loss of this name.

    Examples:
        >>> from curvflow.tasks.numerics import sample_losses
        >>> sample_losses("sse")(torch.zeros(1, 1, 2), torch.tensor([[[3.0, 4.0]]]))
        tensor([[25.]])
    """
    return law_of(name).losses
