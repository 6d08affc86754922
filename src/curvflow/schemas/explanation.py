"""What a reader is told of a kind beside its declaration; it enters no key.

It stands beside the declaration and not in it: what a kind's code reaches is compared
when code changes, and a sentence put better must not ask anybody to settle results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Beginnings of examples, which a stage or two make whole.
TRAINED = """\
study: example
stages:
  digits: {use: data.digits, num_train: 200}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: {rule: sgd, lr: 0.1}, epochs: 5}
"""
REPEATED = """\
study: example
axes:
  seed: 3
  rule: {sgd: {rule: sgd, lr: 0.1}, adam: {rule: adam, lr: 0.01}}
stages:
  digits: {use: data.digits, num_train: 200}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: "${rule}", seed: "${seed}", epochs: 5}
"""


@dataclass(frozen=True)
class Explanation:
    """What a kind computes, whose idea it is, and what it costs.

    Attributes:
        formula: what the main variables are, in symbols.
        source: author, year and where, or why there is none.
        cost: in products, gradients or passes over the data.
        example: a study that can be planned, in YAML.
        page: where the documentation says more, with its heading.
        units: of parameters that are no pure numbers, by name.
    """

    formula: str
    source: str
    cost: str
    example: str
    page: str
    units: Mapping[str, str] = field(default_factory=dict)
