"""Checks of a user's network by trial calls, and of data for models of one input."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor, nn

from curvflow.errors import InputError, summary
from curvflow.schemas.kinds.shared.several_inputs import InputPart
from curvflow.schemas.user_errors import before
from curvflow.tasks.networks.network import Network
from curvflow.tasks.numerics.derivatives.differentiation_modes import has_reverse_mode
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.precision import (
    derivative_along,
    differentiable,
)
from curvflow.tasks.numerics.derivatives.slices import mean_gradient
from curvflow.tasks.numerics.watched_calls import OWN_GRADIENT, is_of_own_gradient

MODELS, SAMPLES = 2, 4


def trial_inputs(input_shape: Sequence[int], *, takes_integers: bool) -> Tensor:
    """Return inputs to try a network on, (1, N, ...), where no data are at hand."""
    if takes_integers:
        return torch.zeros(1, SAMPLES, *input_shape, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, SAMPLES, *input_shape, generator=generator)


def trial_parts(parts: Sequence[InputPart], x: Tensor) -> Tensor:
    """Return trial inputs of several parts: masks that hide nothing, tokens 0.

    Args:
        parts: side by side in a row of inputs.
        x: trial inputs of their shape, (1, N, P).
    """
    filled = x.clone()
    pieces = torch.split(filled, [part.size for part in parts], dim=-1)
    for part, piece in zip(parts, pieces, strict=True):
        if part.kind != "f":
            piece.fill_(1 if part.kind == "b" or "mask" in part.name else 0)
    return filled


def output_shape(num_outputs: int, tokens: int | None) -> tuple[int, ...]:
    """Return the shape of a sample's outputs, (C,) or (T, C)."""
    return (num_outputs,) if tokens is None else (tokens, num_outputs)


def check_network(
    network: Network,
    first_W: Tensor,
    x: Tensor,
    *,
    name: str,
    output_shape: Sequence[int],
    layer: Callable[[], str] = str,
) -> None:
    """Call a network, and derive it once, as training and probes would.

    Second derivatives are taken as the network says that it has them.

    Args:
        network: the network of the user's module.
        first_W: parameters near which it is called, and statistics, (D + S,).
        x: the inputs, (1, N, ...).
        name: name of the user's function, for messages.
        output_shape: outputs expected per sample, (C,) or (T, C).
        layer: names the layer that lacks second derivatives, if it is asked.

    Raises:
        InputError: a call fails, outputs have another shape or depend on random
            numbers, earlier calls or other samples, or second derivatives are missing.
    """
    generator = torch.Generator().manual_seed(0)
    if not x.is_floating_point() and x.numel():
        name = f"{name} on integers from {int(x.min())} to {int(x.max())}"
    # Weights that start at zero would hide the effect of the others.
    noise_MD = torch.randn(MODELS, network.num_parameters, generator=generator)
    parameters_D, statistics_S = network.split(first_W.float())
    statistics_MS = statistics_S.expand(MODELS, -1)
    weights_MW = torch.cat([parameters_D + 0.1 * noise_MD, statistics_MS], dim=1)
    with torch.random.fork_rng(devices=[]):
        with _refused(name, "computes"), torch.no_grad():
            outputs = network.outputs(weights_MW, x)
            if not x.is_floating_point():  # from which results have a type of their own
                network.outputs(weights_MW.double(), x)
        _check_tensor(name, outputs)
        _check_shape(outputs[0], x[0], output_shape)
        last = x.shape[1] - 1
        with _refused(name, "takes a single sample"), torch.no_grad():
            again = network.outputs(weights_MW, x)
            # The first may meet no others where the last does, as in time.
            alone = [network.outputs(weights_MW, x[:, n : n + 1]) for n in (0, last)]
        _check_sameness(outputs, again, torch.cat(alone, dim=1))
        # Each model has a batch of its own there, on whose values it may not branch.
        rows = x.expand(MODELS, *x.shape[1:])
        with _refused(name, "computes in training"), torch.no_grad():
            in_training = [_trained(network, weights_MW, rows) for _ in range(2)]
        _check_repeats(*in_training)
        order = "first" if network.derivatives == "first" else "second"
        with _refused(name, f"has {order} derivatives", layer):
            _derived(network, weights_MW, x)


def _trained(network: Network, weights_MW: Tensor, x: Tensor) -> Tensor:
    """Return outputs and statistics of a pass in training, (M, ...), of equal draws."""
    generator = torch.Generator().manual_seed(0)

    def draw(shape: tuple[int, ...]) -> Tensor:
        return torch.rand(len(weights_MW), *shape, generator=generator)

    passed = network.training_outputs(*network.split(weights_MW), x, draw)
    _check_tensor("in training", passed[0])
    return torch.cat([part.flatten(1) for part in passed], dim=1)


def _derived(network: Network, weights_MW: Tensor, x: Tensor) -> None:
    def losses(weights_MW: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        outputs = network.outputs(weights_MW, inputs).flatten(2)
        return (outputs - targets).square().mean(-1)

    targets = weights_MW.new_zeros(1, x.shape[1], 1)
    weights_MD, fixed_MS = network.split(weights_MW)
    if network.derivatives == "first":
        mean_gradient(losses, weights_MD, x, targets, fixed_MS=fixed_MS)
        return
    if network.derivatives == "all":
        operator = BatchedHessian(losses, weights_MD, x, targets, fixed_MS=fixed_MS)
        along = torch.ones_like(weights_MD)
        operator @ along

        def outputs(weights_MD: Tensor) -> Tensor:
            return network.outputs(torch.cat([weights_MD, fixed_MS], dim=1), x)

        # Within a gradient a module may see that one is wanted, and not in this alone.
        with differentiable():
            derivative_along(outputs, weights_MD, along)
        return
    whole_MD, behind_MS, x, targets = (
        given.double() if given.is_floating_point() else given
        for given in (weights_MD, fixed_MS, x, targets)
    )

    def total(weights_MD: Tensor) -> Tensor:
        weights_MW = torch.cat([weights_MD, behind_MS], dim=1)
        return losses(weights_MW, x, targets).sum()

    with differentiable():
        if not has_reverse_mode(total, whole_MD):
            raise InputError(
                "model: expected second derivatives, got others than differences of "
                "gradients. Write the backward of each function of your own by "
                "functions of torch."
            )


@contextmanager
def _refused(name: str, does: str, layer: Callable[[], str] = str) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            # Slowness under vmap is no error; training itself warns of it.
            warnings.filterwarnings("ignore", "There is a performance drop")
            yield
    except InputError:
        raise
    # User code raises whatever it likes.
    except Exception as error:
        remedy = "Correct the module."
        if named := layer():
            remedy = f"It is in {named}: replace that layer."
        if is_of_own_gradient(error):
            remedy = f"Let it {OWN_GRADIENT}."
        raise InputError(
            f"model: {before(error)}expected a module that {does}, got {name} with "
            f"{summary(error)}. {remedy}"
        ) from error


def _check_tensor(name: str, outputs: object) -> None:
    if not isinstance(outputs, Tensor):
        raise InputError(
            f"model: expected a module that returns a tensor, got {name} with "
            f"{type(outputs).__name__}. Wrap it in a module that returns the outputs "
            "alone."
        )


def _check_shape(outputs: Tensor, x: Tensor, output_shape: Sequence[int]) -> None:
    samples = len(x)
    expected = (samples, *output_shape)
    if outputs.shape != expected:
        raise InputError(
            f"model: expected outputs of shape {expected} for {samples} samples of "
            f"shape {tuple(x.shape[1:])}, got {tuple(outputs.shape)}. Return that, or "
            "set num_classes of the data, or num_outputs of a loss of your own."
        )


def _check_repeats(first: Tensor, again: Tensor) -> None:
    if not torch.allclose(first, again, equal_nan=True):
        raise InputError(
            "model: expected equal outputs in training for equal inputs and draws, got "
            "others at the second call. Draw by functions of torch instead of within a "
            "kernel, such as the dropout of nn.LSTM, and keep no state but in buffers."
        )


def _check_sameness(outputs: Tensor, again: Tensor, alone: Tensor) -> None:
    if not torch.allclose(outputs, again, equal_nan=True):
        raise InputError(
            "model: expected equal outputs for equal inputs, got other outputs at the "
            "second call. Remove internal state, and draw in training alone "
            "(`if self.training`)."
        )
    # Products of other shapes round differently, by far less than samples that meet.
    scale = float(torch.where(outputs.isfinite(), outputs, 0).abs().max())
    ends = outputs[:, [0, -1]]
    if not torch.allclose(ends, alone, rtol=1e-3, atol=1e-4 * scale, equal_nan=True):
        raise InputError(
            "model: expected outputs that depend on their own sample alone, got other "
            "outputs for a batch of one. Remove operations that mix the samples of a "
            "batch, or mix them in training alone (`if self.training`)."
        )


def check_own_memory(module: nn.Module) -> None:
    """Refuse parameters that share entries of memory with another tensor.

    A step in a loop of one's own moves both at once, each by the gradient of both. In a
    study each is moved by its own, as it is in torch behind a change of precision.

    Args:
        module: as the user's function returned it.

    Raises:
        InputError: one that is trained does; it is named with the other.
    """
    trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    frozen = [(n, p) for n, p in module.named_parameters() if not p.requires_grad]
    by_memory: dict[int, list[tuple[str, Tensor]]] = {}
    for name, tensor in (*trained, *frozen, *module.named_buffers()):
        if tensor.layout is torch.strided and tensor.numel():
            earlier = by_memory.setdefault(tensor.untyped_storage().data_ptr(), [])
            if shared := next((n for n, t in earlier if _share(t, tensor)), ""):
                raise InputError(
                    f"model: expected parameters in memory of their own, got '{name}' "
                    f"that shares that of '{shared}'. Copy it by clone(), or give both "
                    "names to one parameter, as by head.weight = table.weight."
                )
            earlier.append((name, tensor))


def _share(first: Tensor, second: Tensor) -> bool:
    """Return whether a parameter is trained and has entries of another tensor."""
    # Under two names it is one, a buffer among them or not.
    if first is second or not first.requires_grad:
        return False
    entries = [_entries(tensor) for tensor in (first, second)]
    (start, end), (other_start, other_end) = ((e.min(), e.max()) for e in entries)
    if end < other_start or other_end < start:
        return False
    return bool(torch.isin(*entries).any())


def _entries(tensor: Tensor) -> Tensor:
    """Return the places of the entries of a tensor in its memory, flat."""
    places = torch.tensor(int(tensor.storage_offset()))
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = places.unsqueeze(-1) + stride * torch.arange(size)
    return places.flatten()


def check_single_input(
    kind: str, input_shape: Sequence[int], num_outputs: int, expected: int
) -> None:
    """Refuse data that do not fit a model of one input.

    Args:
        kind: kind of the model.
        input_shape: shape of one sample.
        num_outputs: outputs of the data.
        expected: outputs of the model.

    Raises:
        InputError: there is more than one input, or another number of outputs.
    """
    if (inputs := prod(input_shape)) != 1 or num_outputs != expected:
        raise InputError(
            f"model: expected 1 input and {expected} outputs for {kind}, got {inputs} "
            f"and {num_outputs}. Take data.known_answer with this model."
        )
