"""Tests for authors of kinds, learning rules, operators and stores; pytest runs them.

from curvflow.testing import StoreContract, assert_operator_is, assert_steps_equal
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from curvflow.testing.operators import assert_operator_is as assert_operator_is
    from curvflow.testing.operators import dense as dense
    from curvflow.testing.operators import dense_ggn as dense_ggn
    from curvflow.testing.operators import dense_hessian as dense_hessian
    from curvflow.testing.operators import sample_gradients as sample_gradients
    from curvflow.testing.rules import assert_steps_equal as assert_steps_equal
    from curvflow.testing.stores import StoreContract as StoreContract

_HOMES = {
    "StoreContract": "curvflow.testing.stores",
    "assert_operator_is": "curvflow.testing.operators",
    "assert_steps_equal": "curvflow.testing.rules",
    "dense": "curvflow.testing.operators",
    "dense_ggn": "curvflow.testing.operators",
    "dense_hessian": "curvflow.testing.operators",
    "sample_gradients": "curvflow.testing.operators",
}
__all__ = [*_HOMES]

# So that a failed assertion shows its values, as in a file of tests.
pytest.register_assert_rewrite(*sorted(set(_HOMES.values())))


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'curvflow.testing' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
