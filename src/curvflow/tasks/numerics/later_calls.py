"""Tensors of a module for functions whose backward calls its layers again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial

from torch import Tensor, nn
from torch.autograd import Variable

# What `functional_call` is made of, which has no public name: it ends with the call.
from torch.nn.utils.stateless import _reparametrize_module

from curvflow.errors import InputError
from curvflow.tasks.numerics.watched_calls import Call, gradient_of, slopes_watched


class LaterCalls:
    """Puts the tensors of a call into a module again while its gradient is taken.

    A deep equilibrium, an adjoint of a differential equation and a reversible block
    call layers in the backward of a function. As the graphs of calls are
    gone through one after another, each has its tensors.
    """

    def __init__(self, module: nn.Module) -> None:
        """Take the module that is called."""
        self._module = module
        self._block: AbstractContextManager[None] | None = None

    def of(self, outputs: Tensor, tensors: Mapping[str, Tensor]) -> None:
        """See to it that a call's tensors are there when its outputs are derived.

        Args:
            outputs: of the call.
            tensors: all that it had, by each of their names.
        """
        if outputs.requires_grad:
            put = partial(self._put, dict(tensors))
            outputs.register_hook(put)  # type: ignore[no-untyped-call] # of torch

    def _put(self, tensors: dict[str, Tensor], _: Tensor) -> None:
        self.restore()
        self._block = _reparametrize_module(self._module, tensors)
        self._block.__enter__()
        # Called when the pass ends, and of no public name.
        Variable._execution_engine.queue_callback(self.restore)

    def restore(self) -> None:
        """Give the module its own tensors, unless it has them."""
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(None, None, None)


def later_calls(
    module: nn.Module,
    field: str,
    call: Callable[[LaterCalls | None], Call],
    leaves: Mapping[str, Tensor],
    registered: Mapping[str, Tensor],
    *,
    moves: bool = True,
) -> LaterCalls | None:
    """Return what a module needs whose layers are called while gradients are taken.

    Args:
        module: whose own tensors are not those of its calls.
        field: what it is called in messages.
        call: from what puts tensors there again, or nothing, to outputs at leaves.
        leaves: that stand for parameters, by name.
        registered: tensors of the module for which calls have others, by name.
        moves: whether these will have other values.

    Returns:
        None if gradients are the same without.

    Raises:
        InputError: gradients are by the module's own tensors all the same.
    """
    before = slopes_watched(call(None), leaves, registered)
    if not before.read:
        return None
    later = LaterCalls(module)
    behind = slopes_watched(call(later), leaves, registered)
    after = gradient_of(call(later), leaves)
    if behind.by and moves:
        raise InputError(
            f"{field}: expected a backward that takes what forward has saved for it, "
            f"got one that takes '{behind.by}' from elsewhere, when it has other "
            "values. Save it by ctx.save_for_backward, or leave the derivative to "
            "torch."
        )
    is_by_others = bool(before.by) and not behind.by
    return later if is_by_others or before.is_wrong(after) else None
