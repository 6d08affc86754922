"""Decorator for a user's kind: declaration and function in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

import numpy as np

from curvflow.errors import InputError, RequestError
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds import add
from curvflow.schemas.nodes import Array, Data, Member, NodeData, Numbers, Outcome
from curvflow.schemas.params import Params
from curvflow.tasks.registry import Machine, computes_each

F = TypeVar("F", bound=Callable[..., Mapping[str, Array] | Outcome])


class NoParams(Params):
    """A stage without parameters."""


def stage(
    name: str,
    *,
    version: int,
    outputs: Sequence[Variable],
    returns: type[NodeData] = Numbers,
) -> Callable[[F], F]:
    """Make a function of one node a kind that studies can `use:`.

    The annotations of the function's arguments declare its inputs: an argument
    annotated with a `Params` model takes the parameters, those annotated with
    `Weights`, `Data` or another edge are inputs; `data` defaults to the data that the
    weights were trained on. The function returns the declared variables as NumPy
    arrays, or an `Outcome`, which may have the status `diverged`.

    Args:
        name: name of the kind for `use:`, such as `probe.mine`.
        version: raise it when the meaning of the results changes.
        outputs: the variables returned, with dims, dtype, units and description.
        returns: the edge type of the result.

    Returns:
        A decorator that registers the function, leaves it as it is and adds the
        declaration as its attribute `kind`.

    Raises:
        RequestError: an argument is not annotated with an edge or a `Params` model, or
            another kind has the name.

    Examples:
        >>> import curvflow, numpy as np
        >>> radius = curvflow.Variable("radius", "of the weights", units="parameter")
        >>> @curvflow.stage("probe.radius", version=1, outputs=[radius])
        ... def radius_of(weights: curvflow.Weights):
        ...     return {"radius": np.linalg.norm(weights["weights"])}
        >>> radius_of.kind.inputs.keys()
        dict_keys(['weights'])
    """

    def register(function: F) -> F:
        inputs, params = _signature(name, function)
        kind = Kind(
            name=name,
            version=version,
            summary=(inspect.getdoc(function) or name).partition("\n")[0],
            params=next(iter(params.values()), NoParams),
            returns=returns,
            outputs=tuple(outputs),
            inputs=inputs,
            vectorised=False,
            home=f"{function.__module__}:{function.__qualname__}",
        )

        def compute(member: Member, machine: Machine) -> Outcome:
            given: dict[str, Any] = {key: member.one(key) for key in inputs}
            given.update(dict.fromkeys(params, member.params))
            result = function(**given)
            if isinstance(result, Outcome):
                return result
            if not isinstance(result, Mapping):
                raise InputError(
                    f"{name}: expected a mapping of variables, got {result!r}. "
                    "Return one array per declared output."
                )
            return Outcome({key: np.asarray(value) for key, value in result.items()})

        add(kind)
        computes_each(name)(compute)
        function.kind = kind  # type: ignore[attr-defined] # read by `use: module:name`
        return function

    return register


def _signature(
    name: str, function: Callable[..., Any]
) -> tuple[dict[str, Input], dict[str, type[Params]]]:
    inputs: dict[str, Input] = {}
    params: dict[str, type[Params]] = {}
    hints = get_type_hints(function)
    edges = [
        n for n in inspect.signature(function).parameters if _is(hints, n, NodeData)
    ]
    for argument, signature in inspect.signature(function).parameters.items():
        if signature.kind in (signature.VAR_POSITIONAL, signature.VAR_KEYWORD):
            raise RequestError(
                f"{name}: expected named arguments, got '{signature}'. Name each one."
            )
        if argument in edges:
            has_data = hints[argument] is Data and "weights" in edges
            follows = "weights" if has_data else ()
            inputs[argument] = Input(hints[argument], follows=follows)
        elif _is(hints, argument, Params) and not params:
            params[argument] = hints[argument]
        else:
            raise RequestError(
                f"{name}: expected argument '{argument}' annotated with Weights, Data "
                f"or a single Params model, got {hints.get(argument, 'nothing')}. "
                "Annotate it; plain values go into the Params model."
            )
    return inputs, params


def _is(hints: Mapping[str, Any], argument: str, base: type) -> bool:
    hint = hints.get(argument)
    return isinstance(hint, type) and issubclass(hint, base)
