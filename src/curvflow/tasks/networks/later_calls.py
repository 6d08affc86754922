"""Tensors of a module for functions whose backward calls its layers again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial

from torch import Tensor, nn
from torch.autograd import Variable

# What `functional_call` is made of, which has no public name: it ends with the call.
from torch.nn.utils.stateless import _reparametrize_module


class LaterCalls:
    """Puts the tensors of a call into a module again while its gradient is taken.

    A deep equilibrium, an adjoint of a differential equation and a reversible block
    call layers in the backward of a function of their own. As the graphs of calls are
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
            outputs.register_hook(partial(self._put, dict(tensors)))

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
