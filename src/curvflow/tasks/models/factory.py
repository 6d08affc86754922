"""Modules of the user's own, as functions of stacked parameter vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter

from curvflow.errors import InputError, summary
from curvflow.schemas.kinds.shared.several_inputs import InputPart
from curvflow.schemas.models.factory import FactoryModel
from curvflow.schemas.user_errors import not_returned, place_of
from curvflow.tasks.networks.checks import (
    check_network,
    check_own_memory,
    output_shape,
    trial_inputs,
    trial_parts,
)
from curvflow.tasks.networks.modules import StackedModule, parameters_of
from curvflow.tasks.networks.network import Layout, Network
from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    Derivatives,
    refuse_scripted,
)
from curvflow.tasks.numerics.derivatives.guards import check_unchanged

# Bytes that activations of one model may take in one pass of products. Each call of a
# module costs Python's time: passes of a few rows of a transformer take twice as long.
PASS_BYTES = 1 << 28

# What is told of a layer without derivatives of all kinds, by those there are.
LACKING: dict[Derivatives, str] = {
    "reverse": "second derivatives are taken by reverse mode, for {} has no others",
    "first": "there are no second derivatives, for {} has none",
}

# What is told of a module that vmap cannot hold.
APART = "networks are computed one after another, for vmap cannot hold them"
LATER = "a backward calls layers"


def build(
    spec: FactoryModel,
    input_shape: Sequence[int],
    num_outputs: int,
    tokens: int | None = None,
    *,
    takes_integers: bool = False,
    parts: Sequence[InputPart] = (),
    rows: Tensor | None = None,
) -> Network:
    """Build the network that the user's function returns.

    Args:
        spec: the function and its arguments.
        input_shape: of one sample.
        num_outputs: outputs expected per sample, or per token, C.
        tokens: outputs expected are (T, C); None for (C,).
        takes_integers: inputs are whole numbers.
        parts: of inputs that are several, side by side; none of one input.
        rows: of inputs to try it on, (N, ...); None makes some up.

    Returns:
        The network. Buffers of real numbers that a `state_dict` holds, such as the
        running means of a batch norm, are statistics, drawn and stored with the
        weights; what is in training as the function returned it moves them. So are
        frozen parameters, which stay as they were drawn. Other buffers are those of a
        fixed seed, the same for every model.

    Raises:
        InputError: it is no module, nothing of it is trained, it computes other shapes,
            depends on chance in evaluation or on the other samples of a batch, or has
            no derivatives.

    What cannot be computed for many models at once, such as a recurrent layer or a
    branch on values, is computed for one after another, as the network's note says. So
    is what lacks derivatives beyond the first, or forward ones, with its layer named.
    """
    made = partial(_make, spec, torch.Generator().manual_seed(0))
    module = made()
    _check_layers(module)
    _check_parameters(module)
    check_own_memory(module)
    _check_gradients(module)
    _take_dense_gradients(module)
    trained = (p for p in module.parameters() if p.requires_grad)
    check_unchanged(module, trained, "model", on_any=True)
    called = StackedModule(module, parts)
    network = _together(spec, called)
    first_W = torch.cat([_flat(called.parameters), network.first_statistics()])
    x = _trial(input_shape, rows, takes_integers=takes_integers, parts=parts)
    shape = output_shape(num_outputs, tokens)
    check = partial(check_network, name=spec.factory, output_shape=shape)
    called.find_copies(x[0])
    _check_scripted(called, x[0])
    called.check_calls(x[0], made)
    check_first = partial(check, first_W=first_W, x=x)
    if cause := LATER if called.is_called_later else _cause(check_first, network):
        note = f"{spec.factory}: {APART} ({cause})"
        network = replace(network, forward=called.apart, note=note)
        network = _apart(network, check_first, called, x[0])
    hooked = partial(network.outputs, first_W[None].float())
    single = torch.zeros_like(x[:, :1]) if rows is None else x[:, :1]
    width = _count_activations(module, hooked, single)
    shares = called.shares
    return replace(network, width=width, moves_statistics=bool(shares), shares=shares)


def _trial(
    input_shape: Sequence[int],
    rows: Tensor | None,
    *,
    takes_integers: bool,
    parts: Sequence[InputPart],
) -> Tensor:
    """Return inputs to try a module on, (1, N, ...)."""
    if rows is not None:
        return (rows if takes_integers else rows.float()).unsqueeze(0)
    x = trial_inputs(input_shape, takes_integers=takes_integers)
    return trial_parts(parts, x) if parts else x


def _together(spec: FactoryModel, called: StackedModule) -> Network:
    """Return a network of which many models are computed at once, not yet tried."""
    statistics = called.statistics

    def initial(generator: torch.Generator) -> Tensor:
        return _flat(parameters_of(_make(spec, generator), trained=True))

    def first_statistics(generator: torch.Generator) -> Tensor:
        return _flat(StackedModule(_make(spec, generator)).statistics)

    return Network(
        _layout(called.parameters),
        called.together,
        1,
        initial,
        statistics=_layout(statistics),
        start=statistics,
        draw_statistics=first_statistics if _draws_statistics(spec, called) else None,
        moves_statistics=False,
        pass_bytes=PASS_BYTES,
        aliases=called.aliases,
        constants=called.constants,
        has_paths=False,
        takes_leaves=True,
    )


def _draws_statistics(spec: FactoryModel, called: StackedModule) -> bool:
    """Return whether buffers are drawn with the weights, as random features are."""
    if called.frozen or called.has_only_means:
        return bool(called.frozen)
    other = StackedModule(_make(spec, torch.Generator().manual_seed(1))).statistics
    return any(
        not torch.equal(first, other[name]) for name, first in called.statistics.items()
    )


def _cause(check: Callable[..., None], network: Network) -> str:
    """Return why a network cannot be computed for many models at once, or "".

    Raises:
        InputError: it cannot be taken at all.
    """
    try:
        check(network)
    except InputError as error:
        if (cause := error.__cause__) is None:
            raise
        return summary(cause)
    return ""


def _apart(
    network: Network,
    check: Callable[..., None],
    called: StackedModule,
    inputs: Tensor,
) -> Network:
    """Return a network that is computed model by model, with what derivatives it has.

    Where a backward calls layers, second ones are compared with differences.

    Raises:
        InputError: it cannot be called, or has no derivatives.
    """
    failure: InputError | None = None
    try:
        if not called.is_called_later:
            check(network)
            return network
    except InputError as error:
        if error.__cause__ is None:
            raise
        failure = error
    place = "" if failure is None else place_of(cast("Exception", failure.__cause__))
    for derivatives, lacks in LACKING.items():
        layer = called.layer_without_derivatives(inputs, derivatives=derivatives)
        layer = layer or place or "a function"
        fewer = replace(
            network,
            derivatives=derivatives,
            lacking=layer,
            note=f"{network.note}; {lacks.format(layer)}",
        )
        try:
            check(fewer)
        except InputError as error:
            failure = failure or error
            continue
        return fewer
    assert failure is not None
    raise failure


def _make(spec: FactoryModel, generator: torch.Generator) -> nn.Module:
    # Modules draw from the global generator; it is put back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        try:
            module = spec.call()
        except InputError:
            raise
        # User code raises whatever it likes.
        except Exception as error:
            wanted = "a torch.nn.Module"
            message = not_returned("model", spec.factory, wanted, error)
            raise InputError(message) from error
    if isinstance(module, nn.Module) and (name := _uninitialised(module)):
        raise InputError(
            f"model: expected parameters whose shapes are known, got '{name}' of "
            f"{spec.factory}, which a first call is to tell. Call the module on inputs "
            "before it is returned."
        )
    if not isinstance(module, nn.Module) or not list(module.parameters()):
        raise InputError(
            f"model: expected {spec.factory} to return a torch.nn.Module with "
            f"parameters, got {type(module).__name__}. Return a module."
        )
    if not any(p.requires_grad for p in module.parameters()):
        raise InputError(
            f"model: expected {spec.factory} to return a module with parameters to "
            "train, got frozen ones alone. Let some of them require a gradient."
        )
    return module


def _layout(tensors: Mapping[str, Tensor]) -> Layout:
    shapes = tuple(tuple(tensor.shape) for tensor in tensors.values())
    return Layout(tuple(tensors), shapes)


def _flat(tensors: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([t.detach().double().flatten() for t in tensors.values()])


def _check_layers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            at = f" at '{name}'" if name else ""
            raise InputError(
                f"model: expected a module in Python, got {type(layer).__name__}{at}. "
                "Return what torch.jit.script was given."
            )
        if isinstance(layer, _BatchNorm) and layer.running_mean is None:
            raise InputError(
                "model: expected outputs that depend on their own sample alone, got "
                f"{type(layer).__name__} at '{name}' without running statistics. Leave "
                "track_running_stats on."
            )


def _check_scripted(called: StackedModule, inputs: Tensor) -> None:
    """Refuse functions that torch.jit has compiled.

    Raises:
        InputError: the module calls one.
    """
    try:
        has_some = called.is_scripted(inputs)
    # What cannot be called is refused with its cause, where networks are tried.
    except Exception:
        return
    if has_some:
        refuse_scripted("model: expected a module in Python")


def _uninitialised(module: nn.Module) -> str:
    """Return the name of a parameter of a lazy layer, or ""."""
    named = module.named_parameters()
    return next((n for n, p in named if isinstance(p, UninitializedParameter)), "")


def _check_parameters(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if not parameter.numel():
            raise InputError(
                f"model: expected parameters with entries, got '{name}' of shape "
                f"{tuple(parameter.shape)}. Remove it, or hold it as a plain attribute."
            )
        if parameter.is_complex():
            raise InputError(
                f"model: expected real parameters, got '{name}' of {parameter.dtype}. "
                "Hold the real and the imaginary part, and put them together by "
                "torch.complex."
            )
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise InputError(
                f"model: expected gradients as they are, got a hook on that of "
                f"'{name}', which would not be called. Write it into forward, as a "
                "mask by a product, or as a parametrization."
            )


def _check_gradients(module: nn.Module) -> None:
    """Refuse layers that would have other gradients than those of the loss."""
    for name, layer in module.named_modules():
        if layer._backward_hooks or layer._backward_pre_hooks:
            at = f" at '{name}'" if name else ""
            raise InputError(
                f"model: expected gradients as they are, got a hook on those of "
                f"{type(layer).__name__}{at}, which would not be called. Return the "
                "module without it."
            )
        if not isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            continue
        if layer.scale_grad_by_freq:
            raise InputError(
                f"model: expected gradients of the loss, got {type(layer).__name__} at "
                f"'{name}' with scale_grad_by_freq, which divides them by how often a "
                "token occurs. Set it to False."
            )


def _take_dense_gradients(module: nn.Module) -> None:
    """Let embeddings have whole gradients; rows alone are for optimisers of those."""
    for layer in module.modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            layer.sparse = False


def _count_activations(
    module: nn.Module, call: Callable[[Tensor], Tensor], x: Tensor
) -> int:
    count = 0

    def add(_module: nn.Module, _inputs: object, output: object) -> None:
        nonlocal count
        count += output.numel() if isinstance(output, Tensor) else 0

    hooks = [layer.register_forward_hook(add) for layer in module.modules()]
    with torch.no_grad():
        call(x)
    for hook in hooks:
        hook.remove()
    return max(1, count)
