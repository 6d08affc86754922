"""Losses, gradients and Hessian products of a batch of models, with their dropout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import pairwise

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors
from torch.func import grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from curvflow.errors import InputError
from curvflow.tasks.networks.network import Layout
from curvflow.tasks.networks.problems import Problem, Samples, read
from curvflow.tasks.numerics.derivatives.batches import fused_label_losses
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.training.cache_blocks import (
    apply_in_blocks,
    go_one_by_one,
    rows_at_once,
)

# From parameters, statistics, inputs and targets to losses, gradient, statistics, and
# the product H w where it is computed.
Compiled = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def compiled(text: str, mode: str, *, has_product: bool) -> Compiled:
    """Compile the derivatives of a problem's batch losses, once for each problem.

    torch.compile has no second derivatives by autograd, so they are taken by
    torch.func, which it traces.

    Args:
        text: the problem as text.
        mode: mode of torch.compile; `reduce-overhead` replays CUDA graphs on a GPU.
        has_product: compute H w too.

    Returns:
        The function; its first call, and the first with other shapes, takes long.

    Raises:
        InputError: the network draws random numbers in training.
    """
    problem, key = read(text), (mode, has_product)
    if key not in problem.programs:
        _check_no_draws(problem)
        problem.programs[key] = _compiled(problem, mode, has_product=has_product)
    return problem.programs[key]


def _compiled(problem: Problem, mode: str, *, has_product: bool) -> Compiled:
    # Looked up here, for what is traced ignores caches.
    of_samples, is_sum = problem.criterion.of_samples, problem.criterion.is_sum

    def losses_of(
        weights_MD: Tensor, statistics_MS: Tensor, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs_MNC, after_MS = problem.network.training_outputs(
            weights_MD, statistics_MS, inputs, _refuse
        )
        losses_MN = of_samples(outputs_MNC, targets)
        losses_M = losses_MN.sum(1) if is_sum else losses_MN.mean(1)
        return losses_M.sum(), (losses_M, after_MS)

    def gradient_of(weights_MD: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        gradient_MD, (losses_M, after_MS) = grad(losses_of, has_aux=True)(
            weights_MD, *rest
        )
        return losses_M, gradient_MD, after_MS

    def product_of(weights_MD: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        def along(moving_MD: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            values = gradient_of(moving_MD, *rest)
            return (values[1] * weights_MD).sum(), values

        product_MD, values = grad(along, has_aux=True)(weights_MD)
        return *values, product_MD

    function: Compiled = torch.compile(
        product_of if has_product else gradient_of, mode=mode
    )
    return _copied(function) if mode == "reduce-overhead" else function


def _copied(function: Compiled) -> Compiled:
    """Return a function whose results outlive its next call.

    A CUDA graph writes to the same memory whenever it is replayed, while results of
    several passes are joined, and statistics enter the next step.
    """

    def copied(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(result.clone() for result in function(*tensors))

    return copied


def _check_no_draws(problem: Problem) -> None:
    """Refuse a network with dropout, whose compilation would fail obscurely."""
    network = problem.network
    weights_MD = torch.zeros(1, network.num_parameters)
    statistics_MS = network.first_statistics().float().unsqueeze(0)
    dtype = torch.int64 if problem.takes_integers else torch.float32
    inputs = torch.zeros(1, 2, *problem.input_shape, dtype=dtype)
    with torch.no_grad():
        network.training_outputs(weights_MD, statistics_MS, inputs, _refuse)


def _refuse(shape: tuple[int, ...]) -> Tensor:
    raise InputError(
        "--compile: compilation cannot be combined with dropout, which draws random "
        "numbers. Run without --compile."
    )


@dataclass(frozen=True)
class Noise:
    """Random numbers of a batch of models in one step, for one purpose.

    Streams begin anew at each step, so that resuming needs no generator state. Models
    with equal seeds draw the same numbers, whatever their rules.

    Attributes:
        seeds: one per model.
        step: steps taken before this one.
        purpose: use of the numbers, such as `dropout`.
        like: a tensor of the dtype and device of the numbers.
    """

    seeds: Sequence[int]
    step: int
    purpose: str
    like: Tensor

    def uniform(self) -> Uniform:
        """Return a source of uniform numbers; equal sources draw the same."""
        return Uniform(self)

    def of(self, models: slice | Tensor) -> Noise:
        """Return the noise of the chosen models."""
        if isinstance(models, slice):
            chosen = self.seeds[models]
        else:
            chosen = [self.seeds[model] for model in models.tolist()]
        return Noise(chosen, self.step, self.purpose, self.like)


class Uniform:
    """Draws uniform numbers, one shape after another."""

    def __init__(self, noise: Noise) -> None:
        """Take the seeds and step; streams are opened at the first draw."""
        self._noise = noise
        self._streams: dict[int, torch.Generator] = {}

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        """Return numbers in [0, 1), (M, *shape)."""
        noise = self._noise
        if not self._streams:
            purpose = f"{noise.purpose}:{noise.step}"
            self._streams = {s: stream(s, purpose) for s in set(noise.seeds)}
        drawn = {
            seed: torch.rand(shape, generator=generator, dtype=noise.like.dtype)
            for seed, generator in self._streams.items()
        }
        return torch.stack([drawn[seed] for seed in noise.seeds]).to(noise.like.device)


@dataclass(frozen=True)
class Gradients:
    """Losses, gradients and products of M models for one step.

    Attributes:
        losses: batch losses, (M,).
        gradient: gradients of the losses, (M, D).
        statistics: statistics after the batch, (M, S).
        product: H w of the last m models, (m, D); the others have none.
    """

    losses: Tensor
    gradient: Tensor
    statistics: Tensor
    product: Tensor

    def product_of(self, models: slice | Tensor) -> Tensor:
        """Return H w of the chosen models, which must have it."""
        without = len(self.losses) - len(self.product)
        if isinstance(models, slice):
            return self.product[models.start - without : models.stop - without]
        return self.product[models - without]


@dataclass(frozen=True)
class Part:
    """Some samples of a batch, one after another.

    Attributes:
        rows: which.
        count: samples of the batch.
    """

    rows: slice
    count: int

    @property
    def share(self) -> float:
        """The share of the batch."""
        return len(range(self.count)[self.rows]) / self.count

    def draw(self, uniform: Uniform) -> Callable[[tuple[int, ...]], Tensor]:
        """Return a source of this part's numbers among those of the whole batch.

        Args:
            uniform: source of numbers (M, N, ...) for all N samples. The second axis
                may count the samples, or else the first several for each, such as
                heads. Of a shape without samples, such as that of weights, all parts
                draw the same.
        """
        samples = len(range(self.count)[self.rows])

        def drawn(shape: tuple[int, ...]) -> Tensor:
            each, rest = divmod(shape[0], samples) if shape else (0, 1)
            if each != 1 and shape[1:2] == (samples,):
                return uniform((shape[0], self.count, *shape[2:]))[:, :, self.rows]
            if each and not rest:
                rows = slice(self.rows.start * each, self.rows.stop * each)
                return uniform((self.count * each, *shape[1:]))[:, rows]
            return uniform(shape)

        return drawn


class Leaves:
    """The parameters of one model as leaves of graphs, step after step the same.

    To make a leaf of each tensor anew takes as long as several small layers.
    """

    def __init__(self, layout: Layout, like_1D: Tensor) -> None:
        """Take the names and shapes, and weights of the precision and device."""
        self._names = layout.names
        self._weights_D = like_1D.new_empty(layout.size)
        self._views = layout.views(self._weights_D)
        self._make()

    def _make(self) -> None:
        self.tensors = [view.detach().requires_grad_() for view in self._views]
        self.named = dict(zip(self._names, self.tensors, strict=True))

    def move(self, weights_1D: Tensor) -> None:
        """Give the leaves the values of weights, before the next graph of them."""
        # What a module puts on its parameters in a call, or for them, is of that call.
        are_marked = any(
            leaf._backward_hooks or leaf.grad is not None or vars(leaf)
            for leaf in self.tensors
        )
        if are_marked or not all(map(Tensor.is_set_to, self.tensors, self._views)):
            self._make()
        self._weights_D.copy_(weights_1D[0])

    def give_back(self, weights_1D: Tensor) -> None:
        """Give weights what a module has written to its own, as a limit in place.

        Those of several models are views of the weights, which change with them.
        """
        weights_1D[0].copy_(self._weights_D)


def parts_of(count: int, parts: int) -> list[Part]:
    """Cut a batch into parts of as equal a size as can be, none of them empty."""
    parts = min(parts, count)
    bounds = [count * number // parts for number in range(parts + 1)]
    return [Part(slice(*ends), count) for ends in pairwise(bounds)]


def parts_in_memory(
    problem: Problem, count: int, like: Tensor, accumulation: int
) -> list[Part]:
    """Cut a batch into the parts requested, or more where its samples are large.

    Those of a module of the user's own, and of a network with a batch norm, may depend
    on each other in training; their batches are cut as requested alone.

    Args:
        problem: network and loss.
        count: samples of the batch.
        like: a tensor of the dtype of the computation.
        accumulation: parts requested.

    Returns:
        The parts, in order.
    """
    network, least = problem.network, 1
    is_own = network.pass_bytes is not None
    is_separable = not (is_own or network.statistics.names)
    rows = rows_at_once(problem, like.element_size())
    if is_separable and rows is not None:
        least = -(-count // rows)
    return parts_of(count, max(accumulation, least))


def gradients(
    problem: Problem,
    weights_MD: Tensor,
    statistics_MS: Tensor,
    samples: Samples,
    noise: Noise,
    *,
    without: int,
    compiler: str = "none",
    accumulation: int = 1,
    leaves: Leaves | None = None,
) -> Gradients:
    """Compute the batch losses of models and their derivatives by the parameters.

    Models do not interact, so the gradient of the sum of their losses holds the
    gradient of each.

    Args:
        problem: network and loss.
        weights_MD: parameters.
        statistics_MS: statistics before the step.
        samples: batches of the models.
        noise: random numbers for dropout.
        without: number of leading models without the product H w.
        compiler: mode of torch.compile; `none` computes call by call.
        accumulation: parts of a batch, one after another, to bound the memory. Losses
            and derivatives are those of the whole; a batch norm sees part by part.
        leaves: of one model at a time whose network takes them, kept for the next
            call; None makes them for this one.

    Returns:
        Losses, gradients and products with the Hessian.

    Reference:
        Pearlmutter (1994), Neural Computation 6(1), for H w as the gradient of g'w with
        w fixed.
    """
    models = len(weights_MD)
    is_one_pass = models == without == accumulation == 1 and compiler == "none"
    if is_one_pass and problem.network.takes_leaves:
        # Blocks and parts, of which there is one, would take as long as some layers.
        arguments = problem, weights_MD, statistics_MS, samples, noise.uniform()
        values = _one_pass(*arguments, has_product=False, leaves=leaves)
        losses_1, gradient_1D, after_1S = values
        return Gradients(losses_1, gradient_1D, after_1S, weights_MD[:0])
    parts = parts_in_memory(problem, samples.count, weights_MD, accumulation)
    step = _Step(
        problem, weights_MD, statistics_MS, samples, noise, parts, compiler, leaves
    )
    if models > 1 and 1 in (without, models - without) and not step.is_one_by_one:
        without = 0  # no pass is of a single model
    passes = [
        step.in_blocks(span, has_product=has_product)
        for has_product, span in (
            (False, slice(0, without)),
            (True, slice(without, models)),
        )
        if span.start < span.stop
    ]
    product_mD = passes[-1][3] if without < models else weights_MD[:0]
    losses_M, gradient_MD, after_MS = _joined([values[:3] for values in passes])
    return Gradients(losses_M, gradient_MD, after_MS, product_mD)


@dataclass(frozen=True)
class _Step:
    """One step of M models, derived block of models by block, and part by part.

    Attributes:
        parts: of the batch, one after another.
        compiler: mode of torch.compile, or `none`.
        leaves: of one model at a time; None makes them for each pass.
    """

    problem: Problem
    weights: Tensor
    statistics: Tensor
    samples: Samples
    noise: Noise
    parts: Sequence[Part]
    compiler: str
    leaves: Leaves | None

    @cached_property
    def _largest(self) -> Samples:
        """The samples of the largest part."""
        return self.samples.rows(self.parts[-1].rows)

    @property
    def is_one_by_one(self) -> bool:
        """Return whether each pass is of one model."""
        return go_one_by_one(
            self.problem,
            self._largest,
            self.weights,
            is_compiled=self.compiler != "none",
        )

    def in_blocks(self, models: slice, *, has_product: bool) -> tuple[Tensor, ...]:
        """Return losses, gradients, statistics and products of some models."""
        return apply_in_blocks(
            partial(self._of_block, has_product=has_product),
            self.problem,
            models,
            self._largest,
            self.weights,
            is_compiled=self.compiler != "none",
        )

    def _of_block(self, models: slice, *, has_product: bool) -> tuple[Tensor, ...]:
        """Return the same of models whose activations fit into the memory."""
        total: tuple[Tensor, ...] = ()
        weights, statistics = self.weights[models], self.statistics[models]
        for part in self.parts:
            batch = self.samples.models(models).rows(part.rows)
            if self.compiler == "none":
                draw = part.draw(self.noise.of(models).uniform())
                arguments = self.problem, weights, statistics, batch, draw
                values = _one_pass(
                    *arguments, has_product=has_product, leaves=self.leaves
                )
            else:
                derive = compiled(
                    self.problem.text, self.compiler, has_product=has_product
                )
                held = _packed(weights), _packed(statistics)
                values = derive(*held, batch.inputs, batch.targets)
            statistics = values[2]
            total = _accumulated(self.problem, total, values, part.share)
        return total


def _joined(passes: Sequence[tuple[Tensor, ...]]) -> Iterator[Tensor]:
    """Yield losses, gradients and statistics of the models of all passes."""
    for several in zip(*passes, strict=True):
        yield torch.cat(several) if len(several) > 1 else several[0]


def _packed(values: Tensor) -> Tensor:
    """Return a copy without gaps: each other layout in memory is compiled anew."""
    return values.clone(memory_format=torch.contiguous_format)


def _accumulated(
    problem: Problem,
    total: tuple[Tensor, ...],
    values: tuple[Tensor, ...],
    share: float,
) -> tuple[Tensor, ...]:
    """Add a part's losses and derivatives to those before; statistics are the last."""
    if share == 1:
        return values
    weight = 1.0 if problem.criterion.is_sum else share
    scaled = [weight * value for value in values]
    if total:
        scaled = [value + before for value, before in zip(scaled, total, strict=True)]
    scaled[2] = values[2]
    return tuple(scaled)


def gradient_at(
    problem: Problem,
    weights_MD: Tensor,
    statistics_MS: Tensor,
    samples: Samples,
    noise: Noise,
    *,
    compiler: str = "none",
    accumulation: int = 1,
    leaves: Leaves | None = None,
) -> Tensor:
    """Compute the gradients of batch losses alone, as at a second place in one step.

    Args:
        problem: network and loss.
        weights_MD: parameters.
        statistics_MS: statistics before the step; those after it are left out.
        samples: batches of the models.
        noise: random numbers for dropout.
        compiler: mode of torch.compile; `none` computes call by call.
        accumulation: parts of a batch.
        leaves: as of `gradients`.

    Returns:
        The gradients, (M, D).
    """
    models = len(weights_MD)
    is_copied = models == 1 and not problem.network.takes_leaves
    if is_copied:  # no pass is of a single model: see decision 0003
        weights_MD, statistics_MS = weights_MD.repeat(2, 1), statistics_MS.repeat(2, 1)
        noise = replace(noise, seeds=[*noise.seeds] * 2)
    several = gradients(
        problem,
        weights_MD,
        statistics_MS,
        samples,
        noise,
        without=len(weights_MD),
        compiler=compiler,
        accumulation=accumulation,
        leaves=leaves,
    )
    return several.gradient[:models]


def _one_pass(
    problem: Problem,
    weights_MD: Tensor,
    statistics_MS: Tensor,
    samples: Samples,
    draw: Callable[[tuple[int, ...]], Tensor],
    *,
    has_product: bool,
    leaves: Leaves | None,
) -> tuple[Tensor, ...]:
    if len(weights_MD) == 1 and problem.network.takes_leaves and not has_product:
        return _one_model(
            problem, weights_MD, statistics_MS, samples, draw, leaves=leaves
        )
    if has_product:
        problem.network.check_derivatives()
    weights_MD = weights_MD.detach().requires_grad_()
    # Fused attention has no second derivatives.
    with sdpa_kernel(SDPBackend.MATH) if has_product else nullcontext():
        outputs_MNC, after_MS = problem.network.training_outputs(
            weights_MD, statistics_MS, samples.inputs, draw
        )
    losses_MN = problem.criterion.of_samples(outputs_MNC, samples.targets)
    losses_M = problem.reduced(losses_MN)
    (gradient_MD,) = torch.autograd.grad(
        losses_M.sum(), weights_MD, create_graph=has_product
    )
    values = losses_M.detach(), gradient_MD.detach(), after_MS
    if not has_product:
        return values
    along = (gradient_MD * weights_MD.detach()).sum()
    (product_MD,) = torch.autograd.grad(along, weights_MD)
    return *values, product_MD


def _one_model(
    problem: Problem,
    weights_1D: Tensor,
    statistics_1S: Tensor,
    samples: Samples,
    draw: Callable[[tuple[int, ...]], Tensor],
    *,
    leaves: Leaves | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same of one model by its tensors, as a plain loop has them.

    Views of a vector, and their derivatives, would take as long as a small layer each.
    """
    network, weights_1D = problem.network, weights_1D.detach()
    leaves = leaves or Leaves(network.layout, weights_1D)
    leaves.move(weights_1D)
    outputs_1NC, after_1S = network.training_outputs(
        weights_1D, statistics_1S, samples.inputs, draw, leaves.named
    )
    losses_1, slopes = _slopes(problem, outputs_1NC, samples.targets, leaves.tensors)
    leaves.give_back(weights_1D)
    # A private name: what is public calls a function for each tensor, which takes as
    # long as a small layer.
    flat_D: Tensor = _flatten_dense_tensors(slopes)  # type: ignore[no-untyped-call]
    gradient_1D = flat_D.unsqueeze(0)
    return losses_1.detach(), gradient_1D, after_1S


def _slopes(
    problem: Problem, outputs_1NC: Tensor, targets: Tensor, leaves: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Return the loss (1,) and its derivative by each leaf."""
    if problem.loss != "cross_entropy" or targets.shape != outputs_1NC.shape[:-1]:
        losses_1 = problem.reduced(problem.criterion.of_samples(outputs_1NC, targets))
        return losses_1, _derived(losses_1, leaves, None)
    terms = fused_label_losses(outputs_1NC, targets)
    # The means are not derived, as their derivatives are known to the bit.
    along = _slopes_of_mean(terms.shape, terms.dtype, terms.device)
    slopes = _derived(terms, leaves, along)
    losses_1N = terms.detach()
    if terms.ndim > 2:
        losses_1N = losses_1N.flatten(2).mean(2)
    return problem.reduced(losses_1N), slopes


def _derived(
    values: Tensor, leaves: Sequence[Tensor], along: Tensor | None
) -> list[Tensor]:
    """Return derivatives by leaves without any yet, and leave none at them.

    Those of certain leaves alone take a walk of the graph, and to let torch put
    in zeros, where a leaf has none, as long as a layer.
    """
    torch.autograd.backward(values, along)
    slopes = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return [
        torch.zeros_like(leaf) if slope is None else slope
        for slope, leaf in zip(slopes, leaves, strict=True)
    ]


@lru_cache(maxsize=64)
def _slopes_of_mean(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the derivative of the mean over samples, and terms, by each term."""
    slope = torch.ones((), dtype=dtype, device=device) / shape[1]
    if len(shape) > 2:
        slope = slope / math.prod(shape[2:])
    return slope.expand(shape)
