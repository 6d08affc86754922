"""A reference to a function of the user's own, called with keyword arguments."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

from pydantic import Field, JsonValue

from curvflow.errors import InputError, nearest
from curvflow.schemas.params import Params


class Factory(Params):
    """What to call for a model or a data set of the user's own."""

    names_code_in: ClassVar[str] = "factory"

    factory: str = Field(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="`package.module:function`",
    )
    kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="keyword arguments of the function"
    )

    def call(self) -> Any:
        """Import the function and call it with the keyword arguments.

        Returns:
            What the function returned.

        Raises:
            InputError: the module or the function does not exist, or does not take
                these arguments.
        """
        function = self._find()
        try:
            return function(**self.kwargs)
        except TypeError as error:
            raise InputError(
                f"factory: expected {self.factory} to take the keyword arguments "
                f"{', '.join(self.kwargs) or '(none)'}, got TypeError: {error}"
            ) from error

    def _find(self) -> Callable[..., Any]:
        path, _, name = self.factory.partition(":")
        try:
            module = import_module(path)
        except ModuleNotFoundError as error:
            raise InputError(
                f"factory: expected a module that can be imported, got '{path}' "
                f"({error}). Install it, or add its folder to PYTHONPATH."
            ) from error
        function = getattr(module, name, None)
        if not callable(function):
            known = [n for n, v in vars(module).items() if callable(v)]
            raise InputError(
                f"factory: expected a function of module '{path}', got '{name}'. "
                f"{nearest(name, known)}"
            )
        found: Callable[..., Any] = function
        return found
