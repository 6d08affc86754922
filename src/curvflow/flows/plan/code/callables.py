"""Functions and classes that parameters name, imported and bound to arguments.

Plans and reports read modules as text. The commands that compute, or say that they
could, import them, for only that shows whether an import fails.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from curvflow.errors import RequestError, nearest, summary
from curvflow.flows.graph.graph import Node
from curvflow.flows.plan.code.sources import LIBRARIES, naming
from curvflow.flows.reads.windows import importing
from curvflow.schemas.kinds.shared.networks import Factory
from curvflow.schemas.losses import OwnLoss
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import Stage
from curvflow.schemas.user_errors import before, before_function

# What is wrong, and what to do.
Fault = tuple[str, str]


@dataclass(frozen=True)
class _Call:
    """A way in which what parameters name is called.

    Attributes:
        first: names of the arguments that are given by their places.
        kwargs: keyword arguments.
    """

    first: tuple[str, ...]
    kwargs: Mapping[str, Any]

    def misfit(self, signature: inspect.Signature) -> str:
        """Return why a function cannot be called so; empty if it can."""
        try:
            signature.bind(*self.first, **self.kwargs)
        except TypeError as error:
            return str(error)
        return ""

    def __str__(self) -> str:
        arguments = f"the keyword arguments {', '.join(self.kwargs) or '(none)'}"
        return (
            f"{' and '.join(self.first)}, and {arguments}" if self.first else arguments
        )


def check_callables(nodes: Iterable[Node], stages: Mapping[str, Stage]) -> None:
    """Import what parameters name, and check that it takes its arguments.

    Nothing is called: what a function does with its arguments shows where results are
    computed.

    Args:
        nodes: that are to be computed.
        stages: of the study.

    Raises:
        StudyError: a module cannot be imported, lacks the name, or what it names is no
            function or does not take the arguments.
    """
    faults, seen = dict[str, Fault | None](), set[int]()
    for node in nodes:
        if id(node.form) in seen:
            continue
        seen.add(id(node.form))
        for path, params, name in naming(node.params):
            text = f"{type(params).__name__} {params.model_dump_json()}"
            if text not in faults:
                faults[text] = _fault(params, name)
            if fault := faults[text]:
                raise stages[node.stage].error(path, *fault, labels=node.coords)


def _fault(params: Params, name: str) -> Fault | None:
    module_name, _, attribute = name.partition(":")
    try:
        module = _imported(module_name)
    except RequestError:
        raise
    except (Exception, SystemExit) as error:  # a module may raise anything
        message = (
            f"{before(error)}expected a module that can be imported, got "
            f"'{module_name}' with {summary(error)}"
        )
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        return message, f"Install {missing}." if missing else "Correct its import."
    function = getattr(module, attribute, None)
    if not callable(function):
        known = [name for name, value in vars(module).items() if callable(value)]
        message = f"expected a function of module '{module_name}', got '{attribute}'"
        return message, nearest(attribute, known)
    return _misfit(name, function, _calls(params))


def _imported(name: str) -> ModuleType:
    """Import a module; what it prints is none of the output of a command."""
    is_theirs = name.partition(".")[0] not in LIBRARIES
    with importing(is_likely=is_theirs), redirect_stdout(sys.stderr):
        return import_module(name)


def _calls(params: Params) -> Sequence[_Call]:
    """Return the ways of which one must do; none if they are not known."""
    if isinstance(params, OwnLoss):  # which makes a loss, or is one
        both = (), ("outputs", "targets")
        return [_Call(first, params.kwargs) for first in both]
    if isinstance(params, Factory):
        return [_Call((), params.kwargs)]
    # Loaded here, for few studies name this rule.
    from curvflow.schemas.rules.torch_optimizer import TorchOptimizer

    if isinstance(params, TorchOptimizer):
        return [_Call(("parameters",), {"lr": params.lr, **params.kwargs})]
    return ()


def _misfit(
    name: str, function: Callable[..., Any], calls: Sequence[_Call]
) -> Fault | None:
    try:
        # Of a decorator, which may give arguments of its own, and not of what is in it.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # of what is compiled, which tells nothing
        return None
    reasons = [call.misfit(signature) for call in calls]
    if not all(reasons) or not calls:
        return None
    call, reason = calls[-1], reasons[-1]
    message = (
        f"{before_function(function)}expected {name} to take {call}, got "
        f"{name.partition(':')[2]}{signature}: {reason}"
    )
    correct = "Correct it, or kwargs."
    unknown = [key for key in call.kwargs if key not in signature.parameters]
    others = [key for key in signature.parameters if key not in call.kwargs]
    hint = nearest(unknown[0], others, otherwise=correct) if unknown else correct
    return message, hint
