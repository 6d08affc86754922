"""Losses that networks are trained with, as functions of stacked outputs and targets.

Every loss is the mean over samples of a number for each, for `sse` the sum. Where not
every term of a sample counts, or some count more, each term brings its weight along
with its label, divided by the mean weight of a sample of the data set: the mean over
samples is then the mean over all terms that count, however ragged the samples are, and
so are gradients and products with it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from curvflow.errors import InputError, summary
from curvflow.schemas.losses import (
    IGNORED,
    AnyLoss,
    Bce,
    CrossEntropy,
    FullLoss,
    Gaussian,
    Huber,
    MixtureBernoulli,
    OwnLoss,
    Poisson,
    with_settings,
)
from curvflow.schemas.nodes import Array
from curvflow.schemas.user_errors import before
from curvflow.tasks.numerics.derivatives.batches import SampleLoss
from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    is_scripted,
    refuse_scripted,
)
from curvflow.tasks.numerics.derivatives.output_laws import (
    LAWS,
    OutputLaw,
    bernoulli,
    counted_labels,
    gaussian,
    mixture_bernoulli,
    mixture_means,
    poisson,
)
from curvflow.tasks.numerics.derivatives.precision import stops_respected
from curvflow.tasks.numerics.watched_calls import check_loss


class Rows(NamedTuple):
    """A few rows of an array, as values that can be compared."""

    shape: tuple[int, ...]
    dtype: str
    content: bytes

    @classmethod
    def of(cls, array: Array) -> Self:
        """Take an array."""
        return cls(array.shape, array.dtype.str, np.ascontiguousarray(array).tobytes())

    def tensor(self) -> Tensor:
        """Return the rows as a new tensor."""
        flat = np.frombuffer(self.content, dtype=self.dtype)
        return torch.as_tensor(flat.copy()).reshape(self.shape)


_adapter: TypeAdapter[AnyLoss] = TypeAdapter(FullLoss)

# The mean of a loss over a batch, and the mean over its samples, agree up to rounding.
SAME_MEAN = 1e-4


def _whole(targets: Array) -> Array:
    return targets


def _themselves(outputs: Tensor) -> Tensor:
    return outputs


@dataclass(frozen=True)
class NetworkLoss:
    """The loss of each sample, and how it takes targets.

    Attributes:
        of_samples: from outputs (M, N, C) or (M, N, T, C), and targets as loaded, to
            losses (M, N).
        has_labels: targets are loaded as labels (int64), else as numbers.
        is_sum: the sum over samples is minimised, else their mean.
        likelihood: name, where it is one of the three that need no settings and no
            change of targets: `cross_entropy`, `mse` or `sse`; else empty.
        law: of which it is the negative logarithm; None where it is of none.
        weighs_terms: targets are loaded as pairs of a label and its weight.
        predicted: from outputs to what stands for the targets.
        by_sign: a prediction above 0 stands for a target above 1/2.
        loaded: from the targets of a data set to loaded ones.
        class_weights: of its terms, by their labels.
    """

    of_samples: SampleLoss
    has_labels: bool = False
    is_sum: bool = False
    likelihood: str = ""
    law: OutputLaw | None = None
    weighs_terms: bool = False
    predicted: Callable[[Tensor], Tensor] = _themselves
    by_sign: bool = False
    loaded: Callable[[Array], Array] = _whole
    class_weights: tuple[float, ...] | None = None

    @property
    def has_fisher(self) -> bool:
        """True if the Gauss-Newton matrix is the Fisher matrix."""
        return self.law is not None and not self.law.depends_on_targets

    def weights_of(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return how much of each sample's labels counts, as it is and in the loss.

        Args:
            targets: as loaded, (M or 1, N, ...).

        Returns:
            Two of shape (M or 1, N), whose mean over a data set is 1 for the latter.
        """
        if not self.weighs_terms:
            ones = torch.ones(targets.shape[:2], device=targets.device)
            return ones, ones
        counts = targets[..., 1]
        weights = counts
        if self.class_weights is not None:
            weights = (
                counts * counts.new_tensor(self.class_weights)[targets[..., 0].long()]
            )
        return sum_of_terms(counts), sum_of_terms(weights)


def sum_of_terms(values: Tensor) -> Tensor:
    """Return the sum over the terms of each sample, (M, N), of one value a term."""
    return values if values.ndim == 2 else values.flatten(2).sum(2)


@lru_cache(maxsize=64)
def network_loss(text: str, *, has_labels: bool) -> NetworkLoss:
    """Return a loss from its text.

    Args:
        text: a name, or canonical JSON of a specification.
        has_labels: the targets of the data are labels, and not values.
    """
    spec = with_settings(parse_loss(text))
    if isinstance(spec, OwnLoss):
        return NetworkLoss(_OwnLoss(spec), has_labels=has_labels)
    if isinstance(spec, CrossEntropy):
        return _cross_entropy(spec)
    if isinstance(spec, Huber):
        return NetworkLoss(partial(_huber, spec.delta))
    if isinstance(spec, str):
        law = LAWS[spec]
        return NetworkLoss(
            law.losses,
            has_labels=spec == "cross_entropy",
            is_sum=spec == "sse",
            likelihood=spec,
            law=law,
        )
    return _of_values(spec, has_labels=has_labels)


def law_of_loss(loss: AnyLoss) -> OutputLaw | None:
    """Return the law of which a loss is the negative logarithm; None of none.

    Args:
        loss: specification; `auto` has that of labels, whose form is that of any it may
            stand for, and a function of the user's own, which is not called, has none.
    """
    if loss == "auto" or isinstance(loss, OwnLoss):
        return LAWS["cross_entropy"] if loss == "auto" else None
    if isinstance(loss, str):
        text: str = loss
    else:
        text = json.dumps(loss.model_dump(mode="json"))
    return network_loss(text, has_labels=True).law


def _of_values(
    spec: Bce | Poisson | Gaussian | MixtureBernoulli, *, has_labels: bool
) -> NetworkLoss:
    """Return the loss of values, or of labels 0 and 1 as one, by their law."""
    match spec:
        case Poisson():
            law = poisson(spec.reduction)
            return NetworkLoss(law.losses, law=law, loaded=_rates)
        case Gaussian():
            law, means = gaussian(spec.reduction), partial(_part, 2)
            return NetworkLoss(law.losses, law=law, predicted=means)
        case Bce():
            law, predicted = bernoulli(spec.reduction), _themselves
        case MixtureBernoulli():
            law = mixture_bernoulli(spec.components)
            predicted = partial(_beyond_half, spec.components)
    loaded = partial(_chances, spec.kind)
    return NetworkLoss(
        law.losses,
        law=law,
        loaded=partial(_column, loaded) if has_labels else loaded,
        predicted=predicted,
        by_sign=True,
    )


def _part(parts: int, outputs: Tensor) -> Tensor:
    return outputs.chunk(parts, -1)[0]


def _beyond_half(components: int, outputs: Tensor) -> Tensor:
    return mixture_means(components, outputs) - 0.5


@lru_cache(maxsize=64)
def parse_loss(text: str) -> AnyLoss:
    """Return the specification of a loss from its name or its canonical JSON."""
    return _adapter.validate_python(json.loads(text) if text[:1] == "{" else text)


def _cross_entropy(spec: CrossEntropy) -> NetworkLoss:
    """Return the cross entropy of the labels that count, each with its weight."""
    smoothing, given = spec.label_smoothing, spec.class_weights

    def of_samples(outputs: Tensor, pairs: Tensor) -> Tensor:
        labels, weights = pairs[..., 0].long(), pairs[..., 1]
        surprises = -torch.log_softmax(outputs, dim=-1)
        if given is not None:
            surprises = surprises * surprises.new_tensor(given)
        labels = labels.expand(outputs.shape[:-1]).unsqueeze(-1)
        terms = surprises.gather(-1, labels).squeeze(-1)
        if smoothing:
            terms = torch.lerp(terms, surprises.mean(-1), smoothing)
        return sum_of_terms(weights * terms)

    def loaded(labels: Array) -> Array:
        is_ignored = (labels == spec.ignore_index) | (labels == IGNORED)
        counts = (~is_ignored).astype(np.float64)
        plain = np.where(counts > 0, labels, 0)
        each = counts
        if given is not None:
            each = counts * np.asarray(given)[plain.astype(np.int64)]
            counts = counts if each.any() else each  # none has a weight
        mean = each.sum() / max(len(labels), 1)
        return np.stack([plain, counts / (mean or 1)], axis=-1)

    # Smoothed labels, and weights by class, are of no likelihood.
    is_likelihood = not smoothing and given is None
    return NetworkLoss(
        of_samples,
        law=counted_labels(of_samples) if is_likelihood else None,
        weighs_terms=True,
        loaded=loaded,
        class_weights=given,
    )


def _huber(delta: float, outputs: Tensor, targets: Tensor) -> Tensor:
    return _huber_loss(outputs, targets, reduction="none", delta=delta).mean(-1)


def _chances(name: str, targets: Array) -> Array:
    if targets.size and not 0 <= targets.min() <= targets.max() <= 1:
        raise InputError(
            f"targets: expected values from 0 to 1 for {name}, got "
            f"{targets.min():g} to {targets.max():g}. Rescale them, or take mse."
        )
    return targets


def _column(chances: Callable[[Array], Array], labels: Array) -> Array:
    """Return labels 0 and 1 as one value each."""
    return chances(labels)[..., np.newaxis]


def _rates(targets: Array) -> Array:
    if targets.size and targets.min() < 0:
        raise InputError(
            f"targets: expected counts for poisson, got {targets.min():g}. Take mse, "
            "or rescale them."
        )
    return targets


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    match reduction:
        case "mean":
            return losses.mean()
        case "sum":
            return losses.sum()
    return losses


def _mse_loss(f: Tensor, y: Tensor, *, reduction: str = "mean") -> Tensor:
    return _reduced((f - y).square(), reduction)


def _huber_loss(
    f: Tensor, y: Tensor, *, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    size = (f - y).abs()
    near = 0.5 * (f - y).square()
    losses = torch.where(size <= delta, near, delta * (size - delta / 2))
    return _reduced(losses, reduction)


def _soft_margin_loss(f: Tensor, y: Tensor, *, reduction: str = "mean") -> Tensor:
    return _reduced(-F.logsigmoid(y * f), reduction)


# Losses of torch (2.13) that have no forward derivative of their gradient.
_PLAIN: dict[Any, Callable[..., Tensor]] = {
    F.mse_loss: _mse_loss,
    F.huber_loss: _huber_loss,
    F.soft_margin_loss: _soft_margin_loss,
}
_PLAIN_ARGUMENTS = {"reduction", "delta"}


class _TwiceDifferentiable(TorchFunctionMode):
    """Calls plain formulas in place of torch's losses that cannot be derived twice."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function, or the formula that stands for it."""
        kwargs = kwargs or {}
        given = {key: value for key, value in kwargs.items() if value is not None}
        if func in _PLAIN and len(args) == 2 and set(given) <= _PLAIN_ARGUMENTS:
            return _PLAIN[func](*args, **given)
        return func(*args, **kwargs)


class _OwnLoss:
    """The loss of each sample by a function of the user's own.

    It is called with the outputs and targets of a batch of one model. What it returns
    is a number for each sample, or the mean over them; the latter is taken sample by
    sample. What vmap cannot hold is computed for one model and sample after another.
    """

    def __init__(self, spec: OwnLoss) -> None:
        # A function may change its arguments, and the specification is kept.
        self._name = spec.factory
        self._function = _function(spec.model_copy(deep=True))
        self._is_batched = True

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the losses (M, N)."""
        each = targets.expand(len(outputs), *targets.shape[1:])
        if self._is_batched:
            try:
                together: Tensor = vmap(self._of_model)(outputs, each)
            # Functions of users fail in any way where they meet vmap.
            except Exception:
                if outputs.is_meta:
                    raise
                self._is_batched = False
            else:
                return together
        return torch.stack(list(map(self._of_model, outputs, each)))

    def batch(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what the function returns for one batch: (), or (N,)."""
        with _TwiceDifferentiable(), stops_respected():
            losses = self._called(outputs, targets)
        if not isinstance(losses, Tensor) or losses.shape not in (
            (),
            outputs.shape[:1],
        ):
            got = type(losses).__name__
            if isinstance(losses, Tensor):
                got = f"a tensor of shape {tuple(losses.shape)}"
            raise InputError(
                f"loss: expected {self._name} to return a scalar or one number a "
                f"sample, of {len(outputs)} samples, got {got}. Sum over what a sample "
                "has, as by losses.flatten(1).sum(1)."
            )
        if not losses.is_floating_point():
            raise InputError(
                f"loss: expected {self._name} to return real numbers, got "
                f"{losses.dtype}. Take a loss that can be derived by the outputs."
            )
        return losses

    def _called(self, outputs: Tensor, targets: Tensor) -> Any:
        if not isinstance(self._function, nn.Module):
            return self._function(outputs, targets)
        named = [*self._function.named_parameters(), *self._function.named_buffers()]
        # Copies where outputs are, of their precision. Torch (2.13) ends with a fault
        # of memory where a parameter itself is moved within a forward derivative.
        held = {
            name: tensor.detach().to(
                outputs.device, outputs.dtype if tensor.is_floating_point() else None
            )
            for name, tensor in named
        }
        return functional_call(self._function, held, (outputs, targets))

    def _of_model(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = self.batch(outputs, targets)
        if losses.ndim:
            return losses
        singles = outputs.unsqueeze(1), targets.unsqueeze(1)
        if self._is_batched:
            each: Tensor = vmap(self.batch)(*singles)
            return each
        return torch.stack(list(map(self.batch, *singles)))


def _function(spec: OwnLoss) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the user's loss: the function itself, or what it makes.

    Raises:
        InputError: it takes neither the keyword arguments alone nor outputs and targets
            before them, or makes nothing that can be called.
    """
    function = spec.find()
    if _can_be_called(function, **spec.kwargs):
        made = spec.call()
        if isinstance(made, nn.Module):
            named = made.named_parameters()
            trained = next((name for name, p in named if p.requires_grad), None)
            if trained is not None:
                raise InputError(
                    f"loss: expected {spec.factory} to have no parameters of its own "
                    f"to train, got '{trained}'. Set its requires_grad to False, or "
                    "let the model have it."
                )
        if callable(made):
            loss: Callable[[Tensor, Tensor], Tensor] = made
            return loss
        raise InputError(
            f"loss: expected {spec.factory} to return a function of outputs and "
            f"targets, got {type(made).__name__}. Correct it."
        )
    if _can_be_called(function, None, None, **spec.kwargs):
        return partial(function, **spec.kwargs)
    raise InputError(
        f"loss: expected {spec.factory} to take outputs and targets, and the keyword "
        f"arguments {', '.join(spec.kwargs) or '(none)'}, got "
        f"{spec.factory.partition(':')[2]}{inspect.signature(function)}. Correct it, "
        "or kwargs."
    )


def _can_be_called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # of builtins, which tell nothing
        return bool(args)
    return True


@lru_cache(maxsize=64)
def check_own_loss(text: str, outputs_shape: tuple[int, ...], targets: Rows) -> None:
    """Call a loss of the user's own on a few targets, as training would.

    Args:
        text: canonical JSON of the loss.
        outputs_shape: of one sample, (C,) or (T, C).
        targets: rows of the data's targets.

    Raises:
        InputError: it fails, returns another shape or no real numbers, mixes the
            samples of a batch, or has no gradient or second derivatives.
    """
    spec = parse_loss(text)
    assert isinstance(spec, OwnLoss)
    loss, targets_N = _OwnLoss(spec), targets.tensor()
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(
        len(targets_N), *outputs_shape, generator=generator, dtype=torch.float64
    )
    shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets_N.shape)}"
    with _refused(spec.factory, f"compute on {shapes}"):
        _check_in_python(
            spec.factory,
            # No leaf, for a call may write into it.
            lambda: loss.batch(outputs.clone().requires_grad_().clone(), targets_N),
        )
        whole = _repeated(spec.factory, loss, outputs, targets_N)
        parts = [slice(row, row + 1) for row in range(len(outputs))]
        alone = torch.stack(
            [
                loss.batch(outputs[part].clone(), targets_N[part]).reshape(())
                for part in parts
            ]
        )
    _check_alone(spec.factory, whole, alone)
    check_loss("loss", outputs, lambda leaf: loss.batch(leaf, targets_N))

    def total(outputs: Tensor) -> Tensor:
        return loss(outputs[None], targets_N[None]).sum()

    if not total(outputs.clone().requires_grad_()).requires_grad:
        raise InputError(
            f"loss: expected {spec.factory} to have a gradient by the outputs, got "
            "numbers without one. Leave out detach, item, numpy and no_grad."
        )
    with _refused(spec.factory, "have second derivatives"):
        jvp(grad(total), (outputs,), (torch.ones_like(outputs),))


def _repeated(name: str, loss: _OwnLoss, outputs: Tensor, targets_N: Tensor) -> Tensor:
    """Return the losses of a batch, of a function that gives them twice alike.

    Raises:
        InputError: a second call gives others, or one changes its outputs.
    """
    given = outputs.clone()
    whole = loss.batch(given, targets_N)
    again = loss.batch(outputs.clone(), targets_N)
    if not torch.equal(given, outputs):
        raise InputError(
            f"loss: expected {name} to leave its outputs as they are, got "
            "others behind a call. Leave out operations in place."
        )
    if not torch.allclose(whole, again, rtol=SAME_MEAN, equal_nan=True):
        raise InputError(
            f"loss: expected {name} to return equal numbers for equal outputs, "
            "got others at the second call. Leave out draws, and what is kept between "
            "calls."
        )
    return whole


def _check_in_python(name: str, call: Callable[[], Tensor]) -> None:
    """Refuse a loss that torch.jit has compiled.

    Raises:
        InputError: it takes such functions.
    """
    if is_scripted(call):
        refuse_scripted(f"loss: expected {name} to be in Python")


def _check_alone(name: str, whole: Tensor, alone: Tensor) -> None:
    """Compare losses of a batch, or their mean, with those of each sample alone, (N,).

    Raises:
        InputError: they differ.
    """
    room = SAME_MEAN * float(whole.abs().nan_to_num().max())
    if whole.ndim and not torch.allclose(
        whole, alone, rtol=SAME_MEAN, atol=room, equal_nan=True
    ):
        raise InputError(
            f"loss: expected {name} to return numbers that depend on their own "
            "sample alone, got others for a batch of one. Leave out what mixes the "
            "samples of a batch."
        )
    if not torch.allclose(whole.mean(), alone.mean(), rtol=SAME_MEAN, equal_nan=True):
        raise InputError(
            f"loss: expected {name} to be a mean over samples, got "
            f"{whole.mean():.6g} for {len(alone)} samples and {alone.mean():.6g} for "
            "the mean of each alone. Return one number a sample, or take "
            "cross_entropy with ignore_index or class_weights."
        )


@contextmanager
def _refused(name: str, does: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    # User code raises whatever it likes.
    except Exception as error:
        raise InputError(
            f"loss: {before(error)}expected {name} to {does}, got {summary(error)}. "
            "Correct the function."
        ) from error
