"""Examples of all kinds with a value of another sort: what a slip of the pen makes."""

import random
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

from ruamel.yaml import YAML

from curvflow.schemas.explanations import explanations
from curvflow.schemas.study.yaml_source import to_yaml
from tests.fuzz.grammar import Case

# Values of every sort, and mappings that name a form by what is no name.
VALUES: list[Any] = [
    *([], [1], [[]], [None], {}, {"a": 1}, {1: 2}, {None: 1}, {True: 2}, None, True),
    *(-1, 0, 10**30, float("nan"), float("inf"), "", "a:b", "${x}", "${seed}"),
    *({name: value} for name in ("kind", "rule", "factory", "use", "init")
      for value in ([1], {"a": 1}, 3, None, "x")),
]  # fmt: skip


@cache
def examples() -> tuple[str, ...]:
    """Return the texts of the examples of all kinds."""
    return tuple(page.example for page in explanations().values() if page.example)


def edited_example(source: random.Random) -> Case:
    """Return an example in which one or two values are others."""
    study = YAML(typ="safe").load(source.choice(examples()))
    for _ in range(source.choice((1, 1, 2))):
        holder, key = source.choice(list(_places(study)))
        holder[key] = deepcopy(source.choice(VALUES))
    return to_yaml(study), ()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every list or mapping within a value, with each key of it."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
