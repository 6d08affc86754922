"""Modules of the user's own, as functions of stacked parameter vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from curvflow.errors import InputError
from curvflow.schemas.models.factory import FactoryModel
from curvflow.tasks.networks.checks import (
    check_network,
    first_line,
    output_shape,
    trial_inputs,
)
from curvflow.tasks.networks.network import ForwardPass, Layout, Network

# What is told of a module that vmap cannot hold.
APART = "networks are computed one after another, for vmap cannot hold them"


def build(
    spec: FactoryModel,
    input_shape: Sequence[int],
    num_outputs: int,
    tokens: int | None = None,
    *,
    takes_integers: bool = False,
) -> Network:
    """Build the network that the user's function returns.

    Args:
        spec: the function and its arguments.
        input_shape: of one sample.
        num_outputs: outputs expected per sample, or per token, C.
        tokens: outputs expected are (T, C); None for (C,).
        takes_integers: inputs are whole numbers.

    Returns:
        The network. Buffers are those of a fixed seed, the same for every model, and
        no training moves them. Those of real numbers that a `state_dict` holds, such
        as the running means of a batch norm, are statistics, stored with the weights.

    Raises:
        InputError: it is no module, has frozen parameters, computes other shapes,
            depends on chance or on the other samples of a batch, or has no second
            derivatives.

    What cannot be computed for many models at once, such as a recurrent layer or a
    branch on values, is computed for one after another, as the network's note says.
    """
    module = _make(spec, torch.Generator().manual_seed(0))
    _check_layers(module)
    _check_parameters(module)
    parameters = dict(module.named_parameters())
    called = _Called(module)
    statistics = called.statistics()

    def initial(generator: torch.Generator) -> Tensor:
        return _flat(_make(spec, generator))

    network = Network(
        _layout(parameters),
        called.together,
        1,
        initial,
        statistics=_layout(statistics),
        start=statistics,
        moves_statistics=False,
        has_paths=False,
    )
    first_W = torch.cat([_flat(module), network.first_statistics()])
    x = trial_inputs(input_shape, takes_integers=takes_integers)
    shape, name = output_shape(num_outputs, tokens), spec.factory
    try:
        check_network(network, first_W, x, name=name, output_shape=shape)
    except InputError as error:
        if (cause := error.__cause__) is None:
            raise
        note = f"{name}: {APART} ({type(cause).__name__}: {first_line(cause)})"
        network = replace(network, forward=called.apart, note=note)
        check_network(network, first_W, x, name=name, output_shape=shape)
    hooked = partial(network.outputs, first_W[None].float())
    width = _count_activations(module, hooked, torch.zeros_like(x[:, :1]))
    return replace(network, width=width)


class _Called:
    """A module called with stacked tensors, for all models together or one by one."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._buffers = dict(module.named_buffers())

    def statistics(self) -> dict[str, Tensor]:
        """Return the buffers of real numbers that a `state_dict` holds."""
        kept = self._module.state_dict()
        return {n: kept[n] for n in kept if _is_real(n, self._buffers)}

    def together(self, forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        """Return the outputs (M, N, ...) by vmap."""
        tensors = dict(forward_pass.tensors)
        shared = inputs.shape[0] == 1
        batched = vmap(self._one, in_dims=(0, None if shared else 0))
        outputs: Tensor = batched(tensors, inputs[0] if shared else inputs)
        return outputs

    def apart(self, forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        """Return the outputs (M, N, ...), of one model after another."""
        stacked = dict(forward_pass.tensors)
        parts = zip(*stacked.values(), strict=True)
        models = [dict(zip(stacked, part, strict=True)) for part in parts]
        each = inputs.expand(len(models), *inputs.shape[1:])
        with _with_own_kernels(self._module):
            return torch.stack(list(map(self._one, models, each)))

    def _one(self, tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        like = next(iter(tensors.values()))
        # Copies, so that a module that changes its buffers does not change these.
        held = {n: _moved(b, like) for n, b in self._buffers.items()} | dict(tensors)
        held |= {n: held[n].detach().clone() for n in self._buffers}
        output: Tensor = functional_call(self._module, held, (inputs,))
        return output


@contextmanager
def _with_own_kernels(module: nn.Module) -> Iterator[None]:
    """Take PyTorch's own kernels of recurrent layers: others lack derivatives."""
    is_recurrent = any(isinstance(layer, nn.RNNBase) for layer in module.modules())
    both: list[Any] = [torch.backends.mkldnn, torch.backends.cudnn]
    backends = both if is_recurrent else []
    before = [backend.enabled for backend in backends]
    for backend in backends:
        backend.enabled = False
    try:
        yield
    finally:
        for backend, enabled in zip(backends, before, strict=True):
            backend.enabled = enabled


def _make(spec: FactoryModel, generator: torch.Generator) -> nn.Module:
    # Modules draw from the global generator; it is put back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        module = spec.call()
    if not isinstance(module, nn.Module) or not list(module.parameters()):
        raise InputError(
            f"model: expected {spec.factory} to return a torch.nn.Module with "
            f"parameters, got {type(module).__name__}"
        )
    return module


def _is_real(name: str, buffers: Mapping[str, Tensor]) -> bool:
    return name in buffers and buffers[name].is_floating_point()


def _layout(tensors: Mapping[str, Tensor]) -> Layout:
    shapes = tuple(tuple(tensor.shape) for tensor in tensors.values())
    return Layout(tuple(tensors), shapes)


def _flat(module: nn.Module) -> Tensor:
    pieces = [p.detach().double().flatten() for p in module.parameters()]
    return torch.cat(pieces)


def _moved(buffer: Tensor, like: Tensor) -> Tensor:
    if buffer.is_floating_point():
        return buffer.to(like.device, like.dtype)
    return buffer.to(like.device)


def _check_layers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        is_random = isinstance(layer, _DropoutNd) and layer.p > 0 and layer.training
        mixes = isinstance(layer, _BatchNorm) and (
            layer.training or layer.running_mean is None
        )
        if is_random or mixes:
            wanted = (
                "equal outputs for equal inputs"
                if is_random
                else "outputs that depend on their own sample alone"
            )
            raise InputError(
                f"model: expected {wanted}, got {type(layer).__name__} at '{name}'. "
                "Remove it, or return the module after eval()."
            )


def _check_parameters(module: nn.Module) -> None:
    frozen = [n for n, p in module.named_parameters() if not p.requires_grad]
    if frozen:
        raise InputError(
            f"model: expected trainable parameters, got frozen '{frozen[0]}'. Register "
            "it as a buffer, or let it train."
        )


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
