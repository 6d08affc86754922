"""Explanations of kinds for readers; they enter no key.

It stands after the declaration and not in it: what a kind's code reaches is compared
when code changes, and a sentence put better must not ask anybody to settle results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from curvflow.schemas.kinds import declarations, kinds_of

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

# What kinds call by one name has one unit, but where a kind says otherwise; 1 is said
# of pure numbers.
UNITS = {
    **dict.fromkeys(("seed", "teacher_seed", "classes"), "1"),
    **dict.fromkeys(("confidence", "quantiles", "least_share"), "1"),
    **dict.fromkeys(("test_fraction", "validation_fraction", "label_noise"), "1"),
    **dict.fromkeys(
        ("tol", "critical_tol", "rounding", "rel_sem", "rel_error", "zero_width"), "1"
    ),
    **dict.fromkeys(("friction", "decay", "diverged_above"), "1"),
    **dict.fromkeys(("num_samples", "num_train", "num_test", "batch_size"), "sample"),
    "train_batch_size": "sample",
    **dict.fromkeys(("num_steps", "support_steps", "max_iterations"), "product"),
    **dict.fromkeys(("num_probes", "max_probes"), "vector"),
    **dict.fromkeys(("num_draws", "draws"), "draw"),
    **dict.fromkeys(("at", "epochs", "record_every"), "epoch"),
    **dict.fromkeys(("dim", "inputs"), "input"),
    **dict.fromkeys(("size", "max_size"), "row"),
    **dict.fromkeys(("block", "oversampling"), "column"),
    **dict.fromkeys(("width", "height"), "mm"),
    "baseline": "as the axis",
    "bins": "bin",
    "crop": "pixel",
    "degenerate_nodes": "Ritz value",
    "folds": "fold",
    "hidden": "unit",
    "k": "eigenvalue",
    "max_passes": "pass",
    "mc_samples": "label",
    "r": "1",
    "num_classes": "class",
    "num_batches": "batch",
    "num_blocks": "block",
    "num_chains": "chain",
    "num_directions": "direction",
    "num_moments": "moment",
    "num_resamples": "resample",
    "num_runs": "run",
    "outputs": "output",
    "pairs": "pair",
    "support": "as the eigenvalues",
}


@dataclass(frozen=True)
class Explanation:
    """Formula, source, cost and example of a kind, for readers.

    Attributes:
        formula: what the main variables are, in symbols.
        source: author, year and where, or why there is none.
        cost: in products, gradients or passes over the data.
        example: a study that can be planned, in YAML.
        page: where the documentation says more, with its heading.
        units: of parameters, by name, `a.b` within mappings, where `UNITS` has
            none or another.
    """

    formula: str
    source: str
    cost: str
    example: str
    page: str
    units: Mapping[str, str] = field(default_factory=dict)

    def units_of(self, parameters: Iterable[str]) -> dict[str, str]:
        """Return the units of a kind's parameters, those within mappings too.

        Args:
            parameters: names of all that are not within mappings.

        Returns:
            Units by name; texts and choices have none.
        """
        return {p: UNITS[p] for p in parameters if p in UNITS} | dict(self.units)


@dataclass(frozen=True)
class Section:
    """The section of a rule or a model in the documentation, in Markdown.

    Attributes:
        group: heading of the page under which it stands.
        summary: a phrase for the overview.
        text: formula, parameters and caveats.
        source: author, year and where.
        example: entries added to the study of the page, in YAML.
    """

    group: str
    summary: str
    text: str
    source: str
    example: str


def explanations() -> dict[str, Explanation]:
    """Return the explanations of the built-in kinds, by name; not all need have one."""
    texts: dict[str, Explanation] = {}
    for module in dict.fromkeys(declarations().values()):
        names = [kind.name for kind in kinds_of(module)]
        family = getattr(module, "EXPLANATIONS", ())
        if family or hasattr(module, "EXPLANATION"):
            texts |= dict(zip(names, family or (module.EXPLANATION,), strict=True))
    return texts
