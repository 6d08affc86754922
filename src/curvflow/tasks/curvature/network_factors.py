"""Kronecker factors of networks: recorded passes of members, and stored blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.func import grad

from curvflow.errors import InputError
from curvflow.schemas.kind import Samples
from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.losses import AnyLoss, CrossEntropy, loss_name
from curvflow.schemas.models import AnyModel
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.network_operators import problem_of, stacked_weights
from curvflow.tasks.networks.losses import law_of_loss, parse_loss
from curvflow.tasks.networks.planned import drawn_networks, planned_problem
from curvflow.tasks.networks.problems import (
    OperatorInputs,
    Problem,
    load_samples,
)
from curvflow.tasks.numerics.derivatives.batches import SampleLoss
from curvflow.tasks.numerics.derivatives.fishers import (
    Psd,
    fisher_draws,
    fisher_roots,
    ggn_roots,
)
from curvflow.tasks.numerics.derivatives.output_laws import (
    FisherForm,
    OutputLaw,
    counted_labels,
    fewest_roots,
)
from curvflow.tasks.numerics.derivatives.passes import Part
from curvflow.tasks.numerics.kronecker.factors import (
    Choices,
    Factors,
    Recursion,
    check_factors,
    factors,
)
from curvflow.tasks.numerics.kronecker.recorded import Recorded, Roots, Slopes
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine

# Numbers that a pass holds, and that each root leaves at the layers, as shares of the
# width of a network.
GRAPH_SHARE, ROOT_SHARE = 0.75, 0.25

# Bytes of activations of one model, unless its network has a bound, and how much more a
# pass may take: of few samples the moments of many columns are more work than all else.
PASS_BYTES, PASSES = 1 << 25, 2

# Forms whose columns are random, and the stream that they are drawn from.
DRAWN = {"mc": "labels", "projection": "projections"}


def chosen_names(params: FactorsParams, problem: Problem) -> tuple[str, ...] | None:
    """Return the names of the parameter tensors looked at; None for all.

    Raises:
        InputError: a pattern fits none.
    """
    if params.layers is None:
        return None
    return problem.network.layout.matching(params.layers)


def check_loss(params: FactorsParams, loss: AnyLoss) -> None:
    """Refuse factors that a loss has none of, whatever the model and the data.

    Args:
        params: which factors.
        loss: the loss; a function of the user's own is not called.

    Raises:
        InputError: the loss has no likelihood to draw labels from or to take the Fisher
            matrix of, or its Hessian by the outputs is indefinite, and refused.
    """
    law, name = law_of_loss(loss), loss_name(loss)
    takes_hessian = params.fisher_type in ("type-2", "projection", "recursive")
    takes_hessian = takes_hessian and params.curvature == "ggn"
    if law is None:
        if params.fisher_type == "mc":
            raise InputError(_no_sampler(name))
        if takes_hessian and params.psd == "fisher":
            raise InputError(
                "psd: fisher cannot be combined with a loss without a likelihood, got "
                f"{name}. Take clip or abs."
            )
        return
    is_mixed = getattr(loss, "components", 2) > 1
    is_indefinite = law.depends_on_targets and is_mixed
    if takes_hessian and is_indefinite and params.psd == "refuse":
        raise InputError(
            f"psd: refuse cannot be combined with loss {law.name}, whose Hessian by "
            "the outputs is indefinite. Set psd to clip, abs or fisher."
        )


def _no_sampler(name: str) -> str:
    return (
        "fisher_type: mc cannot be combined with a loss without a likelihood, got "
        f"{name}. Take type-2, or empirical."
    )


@lru_cache(maxsize=64)
def check_planned(
    params: FactorsParams, model: AnyModel, loss: AnyLoss, samples: Samples
) -> None:
    """Refuse factors of a model that is to be fitted to samples of some form.

    Args:
        params: which factors.
        model: specification of the model.
        loss: the loss.
        samples: with shape, targets and outputs.

    Raises:
        InputError: layers do not fit, by the name of a tensor.
    """
    problem = planned_problem(model, loss, samples)
    choices = choices_of(params, chosen_names(params, problem))
    check_factors(drawn_networks(problem), choices)


def network_factors(
    members: Sequence[Member], machine: Machine, params: Sequence[FactorsParams]
) -> Factors:
    """Find the factors of networks of one problem.

    Args:
        members: each with `weights` and `data`.
        machine: the device to compute on.
        params: of each member; they differ in the seed at most.

    Returns:
        The factors of all members.

    Raises:
        InputError: a weight is NaN or infinite, or the loss or the layers do not fit.
    """
    first, problem = params[0], problem_of(members[0])
    # The package's own layers write to nothing that they are given.
    shares = problem.network.notes_all
    weights_MW = stacked_weights(members, machine, dtype=first.dtype, shares=shares)
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    data = [member.one("data") for member in members]
    samples = load_samples(
        problem, data, "", machine.device, weights_MD.dtype, shares=shares
    )
    given = OperatorInputs(
        weights_MD=weights_MD,
        inputs=samples.inputs,
        targets=samples.targets,
        fixed_MS=statistics_MS,
        batch_size=rows_per_pass(problem, first, samples.inputs.shape[1]),
        models_per_pass=len(members),
    )
    of = recorded_networks(problem, params, given)
    return factors(of, choices_of(first, chosen_names(first, problem)))


def recorded_networks(
    problem: Problem, params: Sequence[FactorsParams], given: OperatorInputs
) -> Recorded:
    """Return networks of a problem, whose uses of parameters are recorded.

    Args:
        problem: of all of them.
        params: of each; they differ in the seed at most.
        given: weights, samples, and how many of each a pass takes.
    """
    layout, loss = problem.network.layout, output_loss(problem)
    return Recorded(
        problem.network.outputs_and_uses,
        layout.names,
        layout.shapes,
        given["weights_MD"],
        given["fixed_MS"],
        given["inputs"],
        given["targets"],
        output_roots(loss, params, given["inputs"].shape[1]),
        given["batch_size"],
        given["models_per_pass"],
        output_slopes(loss),
        problem.network.notes_all,
        loss.variances,
    )


def choices_of(params: FactorsParams, names: tuple[str, ...] | None) -> Choices:
    """Return which factors parameters request.

    Args:
        params: of the factors.
        names: of the parameter tensors looked at; None for all.
    """
    return Choices(
        structure=params.structure,
        kfac_approx=params.kfac_approx,
        separate_weight_and_bias=params.separate_weight_and_bias,
        other=params.other,
        is_forward_only=params.fisher_type == "forward-only",
        layers=names,
        recursion=_recursion(params),
        has_draws=params.fisher_type in DRAWN,
    )


def _recursion(params: FactorsParams) -> Recursion | None:
    if params.curvature == "hessian":
        return "hessian"
    return "recursive" if params.fisher_type == "recursive" else None


def rows_per_pass(problem: Problem, params: FactorsParams, num_samples: int) -> int:
    """Return how many samples of one model a pass takes, whatever the tile.

    Roots go back one after another, but what they leave at the layers is kept. Passes
    are as large as each other, up to the last few samples.

    Args:
        problem: network and loss.
        params: which factors.
        num_samples: N.
    """
    numbers = GRAPH_SHARE + ROOT_SHARE * num_roots(problem, params)
    item: int = getattr(torch, params.dtype).itemsize
    each = item * numbers / PASSES
    most = problem.rows_per_pass(1, each=each, most=PASS_BYTES)
    return -(-num_samples // -(-num_samples // most))


def num_roots(problem: Problem, params: FactorsParams) -> int:
    """Return how many derivatives back there are of each sample."""
    if params.fisher_type in ("mc", "projection"):
        return params.mc_samples
    if params.fisher_type in ("empirical", "forward-only"):
        return 1
    loss = output_loss(problem)
    law = loss.curved or loss.law
    lacks_one = law is not None and law.lacks_one and loss.outputs > 1
    return (loss.outputs - lacks_one) * (problem.tokens or 1)


@dataclass(frozen=True)
class OutputLoss:
    """The loss of samples as a function of their outputs.

    Attributes:
        name: for messages.
        of_samples: from outputs (M, N, C) or (M, N, T, C), and targets, to (M, N).
        law: of which it is the negative logarithm; None where it is of none.
        outputs: C.
        tokens: T; None of samples that have one output each.
        curved: a law whose exact matrix is the Hessian of a loss that is of none.
    """

    name: str
    of_samples: SampleLoss
    law: OutputLaw | None
    outputs: int
    tokens: int | None
    curved: OutputLaw | None = None

    @property
    def variances(self) -> Callable[[Tensor], Tensor] | None:
        """Diagonals of the exact matrices; None if these are not diagonal."""
        return None if self.law is None or self.tokens else self.law.variances


def output_loss(problem: Problem) -> OutputLoss:
    """Return the loss of a problem as a function of the outputs."""
    criterion = problem.criterion
    outputs = problem.num_outputs
    spec, law = parse_loss(problem.loss), criterion.law
    curved = None
    if isinstance(spec, CrossEntropy) and law is None:
        curved = _weighted_labels(spec, criterion.of_samples)
    name = str(loss_name(spec))
    return OutputLoss(name, criterion.of_samples, law, outputs, problem.tokens, curved)


def _weighted_labels(spec: CrossEntropy, of_samples: SampleLoss) -> OutputLaw:
    """Return a law with the Hessian of smoothed labels, or weights of classes.

    Of a sum over classes k of q_k w_k times -log p_k it is that of the plain cross
    entropy times the sum of q_k w_k.
    """
    plain = counted_labels(of_samples)

    def roots(
        form: FisherForm, outputs: Tensor, pairs: Tensor, uniform: Tensor | None
    ) -> Tensor:
        given = spec.class_weights or (1.0,) * outputs.shape[-1]
        by_class = pairs.new_tensor(given)
        labels, counts = pairs.unbind(-1)
        weights = by_class[labels.long()]
        counts = counts * torch.lerp(weights, by_class.mean(), spec.label_smoothing)
        return plain.roots(form, outputs, torch.stack([labels, counts], -1), uniform)

    return replace(plain, roots=roots)


def output_slopes(loss: OutputLoss) -> Slopes:
    """Return gradients of the samples' losses by the outputs, of each pass."""

    def slopes(part: Part, outputs: Tensor) -> Tensor:
        slope: Tensor = grad(lambda f: loss.of_samples(f, part.targets).sum())(outputs)
        return slope

    return slopes


def output_roots(
    loss: OutputLoss, params: Sequence[FactorsParams], num_samples: int
) -> Roots:
    """Return what goes back through networks, of each pass.

    Args:
        loss: of the outputs.
        params: of each model, which differ in the seed at most.
        num_samples: N.

    Returns:
        From a pass and its outputs to roots (M, N, R, ...): the mean over samples of
        J'SS'J is the matrix.

    Raises:
        InputError: the loss has no likelihood to draw labels from.
    """
    kind = params[0].fisher_type
    if kind == "mc" and loss.law is None:
        raise InputError(_no_sampler(loss.name))
    if kind in ("empirical", "forward-only"):
        slopes = output_slopes(loss)
        return lambda part, outputs: slopes(part, outputs).unsqueeze(2)
    drawn: dict[str, Tensor] = {}

    def roots(part: Part, outputs: Tensor) -> Tensor:
        if kind == "mc":
            uniform = _drawn(drawn, loss, params, num_samples)
            return _sampled(loss, part, outputs, uniform[part.models, part.rows])
        if kind != "projection":
            return _exact(loss, part, outputs, params[0].psd, fewest=True)
        exact = _exact(loss, part, outputs, params[0].psd)
        signs = _coefficients(drawn, params, num_samples, exact.shape[2])
        signs = signs[part.models, part.rows].to(exact)
        flat = signs @ exact.flatten(3) / math.sqrt(params[0].mc_samples)
        return flat.reshape(*flat.shape[:3], *exact.shape[3:])

    return roots


def _drawn(
    drawn: dict[str, Tensor],
    loss: OutputLoss,
    params: Sequence[FactorsParams],
    num_samples: int,
) -> Tensor:
    """Return the uniform numbers of labels; of more draws, the first are the same."""
    if "mc" not in drawn:
        assert loss.law is not None
        _, *each = fisher_draws(loss.law, loss.outputs, params[0].mc_samples)
        tokens = () if loss.tokens is None else (loss.tokens,)
        shape = (params[0].mc_samples, num_samples, *tokens, *each)
        by_model = _by_seed(
            params,
            "labels",
            lambda g: torch.rand(shape, generator=g, dtype=torch.float64),
        )
        drawn["mc"] = by_model.movedim(1, 2 + len(tokens))
    return drawn["mc"]


def _coefficients(
    drawn: dict[str, Tensor],
    params: Sequence[FactorsParams],
    num_samples: int,
    roots: int,
) -> Tensor:
    if "projection" not in drawn:
        shape = (params[0].mc_samples, num_samples, roots)

        def draw(generator: torch.Generator) -> Tensor:
            if params[0].distribution == "gaussian":
                return torch.randn(shape, generator=generator, dtype=torch.float64)
            uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
            return torch.where(uniform < 0.5, -1.0, 1.0)

        drawn["projection"] = _by_seed(params, "projections", draw).transpose(1, 2)
    return drawn["projection"]


def _by_seed(
    params: Sequence[FactorsParams],
    purpose: str,
    draw: Callable[[torch.Generator], Tensor],
) -> Tensor:
    drawn = {p.seed: draw(stream(p.seed, purpose)) for p in params}
    return torch.stack([drawn[p.seed] for p in params])


def _sampled(loss: OutputLoss, part: Part, outputs: Tensor, uniform: Tensor) -> Tensor:
    """Return the gradients at drawn labels, those of a sample's tokens together."""
    assert loss.law is not None
    uniform = uniform.to(outputs.device)
    if loss.tokens is None:
        return fisher_roots("sampled", loss.law, outputs, part.targets, uniform)
    flat = [given.flatten(1, 2) for given in (outputs, part.targets, uniform)]
    scores = fisher_roots("sampled", loss.law, *flat)
    each = torch.unflatten(scores, 1, outputs.shape[1:3]).transpose(2, 3)
    return each if loss.law.weighs_terms else each / math.sqrt(loss.tokens)


def _exact(
    loss: OutputLoss, part: Part, outputs: Tensor, psd: Psd, *, fewest: bool = False
) -> Tensor:
    """Return all roots of each sample's output matrix, one token at a time."""
    law, shape = loss.curved or loss.law, outputs.shape[2:]
    if loss.tokens is None and fewest and law is not None and law.lacks_one:
        return fewest_roots(law, outputs, part.targets)
    if loss.tokens is None or law is None:  # tokens may meet in an unknown loss

        def losses(flat: Tensor, targets: Tensor) -> Tensor:
            return loss.of_samples(torch.unflatten(flat, 2, shape), targets)

        flat = outputs.flatten(2)
        # With a name of a law that law would be taken, whatever the loss is.
        named = law or f"the loss {loss.name}"
        joint = ggn_roots(losses, flat, part.targets, psd=psd, loss=named)
        return torch.unflatten(joint, 3, shape)
    terms = [given.flatten(1, 2) for given in (outputs, part.targets)]
    if fewest:
        root_factors = fewest_roots(law, *terms)
    else:
        root_factors = fisher_roots("exact", law, *terms)
    roots = torch.unflatten(root_factors, 1, outputs.shape[1:3])
    if not law.weighs_terms:
        roots = roots / math.sqrt(loss.tokens)
    eye = torch.eye(loss.tokens, dtype=roots.dtype, device=roots.device)
    apart = eye[:, None, :, None] * roots.unsqueeze(4)  # M, N, T, R, T, C
    return apart.flatten(2, 3)
