"""Uses of parameters in any torch module, noted where torch's functions are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from curvflow.tasks.numerics.kronecker.uses import (
    AnyUse,
    Form,
    Lookup,
    Rows,
    Scaling,
    Use,
    Windows,
)

Called = TypeVar("Called")

_NORMS = (F.batch_norm, F.layer_norm, F.group_norm, F.rms_norm)


class UseRecorder(TorchFunctionMode):
    """Notes each call of a layer's function with parameters of one model.

    A parameter is known by its identity, so that a layer that is used twice or a weight
    that two layers share, is noted under one name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the parameters of the model by name; of several names the first."""
        super().__init__()
        self.uses: list[AnyUse] = []
        self._names: dict[int, str] = {}
        for name, tensor in tensors.items():
            self._names.setdefault(id(tensor), name)
        self._tokens_first = False
        self._copies = False
        self._versions: list[tuple[Tensor, int]] = []

    def recorded(self, call: Callable[[], Called]) -> Called:
        """Return what a call returns, and note its uses.

        What comes back through outputs that are overwritten, as by an activation in
        place, comes through what they have become. They are overwritten in copies.
        """
        with self:
            result = call()
        if any(outputs._version != version for outputs, version in self._versions):
            self.uses.clear()
            self._copies = True
            with self:
                result = call()
        self._versions.clear()
        return result

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function, and note what it does with parameters."""
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self._within_attention():
                return func(*args, **kwargs)
        outputs = func(*args, **kwargs)
        noted = len(self.uses)
        if func in _NORMS:
            self._norm(func, _bound(func, args, kwargs), outputs)
        elif func in _NOTES:
            _NOTES[func](self, _bound(func, args, kwargs), outputs)
        if len(self.uses) == noted:
            return outputs
        self._versions.append((outputs, outputs._version))
        return outputs.clone() if self._copies else outputs

    @contextmanager
    def _within_attention(self) -> Iterator[None]:
        """Note the projections within torch's attention, which has tokens first."""
        asks = F.has_torch_function  # type: ignore[attr-defined] # as torch imports it
        F.has_torch_function = lambda _: False  # type: ignore[attr-defined]
        self._tokens_first = True
        try:
            with self:
                yield
        finally:
            F.has_torch_function = asks  # type: ignore[attr-defined]
            self._tokens_first = False

    def dense(self, given: Mapping[str, Any], outputs: Tensor) -> None:
        """Note a dense layer."""
        self._note(given, outputs, Rows(tokens_first=self._tokens_first))

    def convolution(self, given: Mapping[str, Any], outputs: Tensor) -> None:
        """Note a convolution."""
        sides = given["weight"].ndim - 2

        def each(value: int | tuple[int, ...]) -> tuple[int, ...]:
            return (value,) * sides if isinstance(value, int) else tuple(value)

        dilation, padding = each(given["dilation"]), given["padding"]
        if isinstance(padding, str):
            kernel = given["weight"].shape[2:]
            total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
            room = total if padding == "same" else [0] * sides
            pads = tuple((t // 2, t - t // 2) for t in room)
        else:
            pads = tuple((p, p) for p in each(padding))
        form = Windows(each(given["stride"]), pads, dilation, given["groups"])
        self._note(given, outputs, form)

    def lookup(self, given: Mapping[str, Any], outputs: Tensor) -> None:
        """Note a table of rows."""
        if given["max_norm"] is None and not given["scale_grad_by_freq"]:
            self._note(given, outputs, Lookup(given["padding_idx"]))

    def _norm(self, func: Any, given: Mapping[str, Any], outputs: Tensor) -> None:
        """Note the scale and the shift behind a norm of one dimension."""
        weight, bias = given["weight"], given.get("bias")
        name = self._names.get(id(weight))
        if name is None or weight.ndim != 1:
            return
        unused = {"weight", "bias"}
        if given.get("training"):  # else it would move the running moments twice
            unused |= {"running_mean", "running_var"}
        bare = {k: None if k in unused else v for k, v in given.items()}
        normed = func(**bare).detach()
        channel = 2 if func in (F.batch_norm, F.group_norm) else normed.ndim
        self.uses.append(
            Scaling(name, self._bias(bias), normed[None], (outputs,), channel, True)
        )

    def _note(self, given: Mapping[str, Any], outputs: Tensor, form: Form) -> None:
        name = self._names.get(id(given["weight"]))
        if name is not None:
            added = self._bias(given.get("bias"))
            inputs = given["input"][None]
            self.uses.append(Use(name, added, inputs, (outputs,), form, True))

    def _bias(self, bias: Tensor | None) -> str | None:
        return None if bias is None else self._names.get(id(bias))


def _bound(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included."""
    names = _ARGUMENTS.get(func)
    if names is None:
        bound = inspect.signature(func).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    return names | dict(zip(names, args, strict=False)) | dict(kwargs)


_LINEAR: dict[str, Any] = {"input": None, "weight": None, "bias": None}
_CONVOLUTION = _LINEAR | {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}

# Of builtins, which tell no signature.
_ARGUMENTS: dict[Any, dict[str, Any]] = {
    F.linear: _LINEAR,
    torch.conv1d: _CONVOLUTION,
    torch.conv2d: _CONVOLUTION,
    torch.conv3d: _CONVOLUTION,
}

_NOTES: dict[Any, Callable[[UseRecorder, Mapping[str, Any], Tensor], None]] = {
    F.linear: UseRecorder.dense,
    F.embedding: UseRecorder.lookup,
    torch.conv1d: UseRecorder.convolution,
    torch.conv2d: UseRecorder.convolution,
    torch.conv3d: UseRecorder.convolution,
}


def stacked_uses(per_model: list[list[AnyUse]]) -> list[AnyUse]:
    """Return the uses of several models as one list of uses of all of them.

    Args:
        per_model: those of each model, in the same order.
    """
    return [_stacked(uses) for uses in zip(*per_model, strict=True)]


def _stacked(uses: tuple[AnyUse, ...]) -> AnyUse:
    inputs = torch.cat([use.inputs for use in uses])
    return replace(uses[0], inputs=inputs, outputs=tuple(u.outputs[0] for u in uses))
