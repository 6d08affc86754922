"""Kronecker factors for an operator of the library, as stages are given them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Protocol

from curvflow.errors import InputError, said_at
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Factors
from curvflow.schemas.params import Params

NAME = "preconditioner"


class Preconditioner(Protocol):
    """Factors of a module, as `curvflow.kronecker` returns them.

    Attributes:
        sizes: entries of each parameter by name, in their order.
        node: the factors as a stage would be given them.
    """

    @property
    def sizes(self) -> Mapping[str, int]: ...  # noqa: D102 -- see Attributes

    @property
    def node(self) -> Factors: ...  # noqa: D102 -- see Attributes


def factors_beside(
    kind: Kind,
    params: Params,
    given: Preconditioner | None,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, list[Factors]]:
    """Return what a stage of a kind takes in as its preconditioner.

    Args:
        kind: of the stage.
        params: of the stage.
        given: factors of the same module and data; None of none.
        sizes: of the parameters that the stage's operator is of; None if not known.

    Returns:
        The input, as of a member.

    Raises:
        InputError: it is none, is of other parameters, or leaves a parameter of the
            stage no say.
    """
    if given is None:
        return {}
    if not isinstance(getattr(given, "node", None), Factors):
        raise InputError(
            f"preconditioner: expected factors, got {type(given).__name__}. Take what "
            "curvflow.kronecker returns."
        )
    if sizes is not None and dict(given.sizes) != dict(sizes):
        others = ", ".join(sorted(dict(given.sizes).keys() ^ dict(sizes).keys()))
        raise InputError(
            f"preconditioner: expected factors of the {sum(sizes.values())} parameters "
            f"of the operator, got others: {others or 'of other sizes'}. Give both the "
            "same module and layers."
        )
    taken = kind.inputs[NAME]
    for name in taken.settles:
        value, default = getattr(params, name), type(params).model_fields[name].default
        if value != default:
            raise InputError(
                f"{name} cannot be combined with preconditioner, got {value}. Remove "
                "it."
            )
    alike: Any = SimpleNamespace(layers=getattr(params, "layers", None))
    for where, message, hint in (
        taken.lacking(params, NAME, alike) if taken.lacking else ()
    ):
        path = ".".join(map(str, where))
        raise InputError(f"{path}: {said_at(path, message)}. {hint}")
    return {NAME: [given.node]}
