"""Learning rules: `init` and `step`, over the models of a batch.

A file holds these functions of one rule, or in `RULES` those of each rule of a family.

    init(weights_MD, hyper, problem) -> state
    step(gradient_MD, state, weights_MD, hyper, context) -> weights, state

`hyper` holds the floats and flags of the rules, (M, 1) each, by name; all else that a
rule's specification says is a choice that the models of a batch share, `hyper.rule`.
`context` is the context of the step: see `curvflow.tasks.training.step_context.Step`.

The state of a rule is a tensor, None, or a tuple of these, named or not, to
any depth; the first dimension of every tensor is the model. A tensor may be None where
no model of the batch needs it, as a velocity without momentum. Such a state is kept,
stored and restored without the rule's doing; all that `step` depends on besides its
arguments belongs into it.

Further functions are called where a rule has them:

    check(rule, problem)
    check_loss(rule, loss)
    evaluated(weights_MD, state, hyper) -> weights
    watch(weights_MD, state, validation_loss_M, hyper) -> state
    notice(hyper, problem) -> line
    rates(state, hyper) -> learning rate, momentum
    recorded(state, hyper) -> numbers by name
    preconditioner(state, weights_MD, hyper) -> Preconditioner

`check` refuses a problem that the rule cannot be trained on; if the specification's
`checks_problem` says so, it is called while planning too, where model and samples are
known. `check_loss` refuses a loss by its specification alone, before anything is known
of model or samples, and calls no function of the user's own. `evaluated` returns the
weights that are the rule's result, measured and stored, where these are not those it
steps from, such as an average; training goes on from the others all the same. `watch`
is called after each epoch if the specification's `watches` says so. `notice` returns a
line, or none, that is shown before training begins, as of what makes it slow. `rates`
returns those in force, (M, 1) each, where the rule chooses them itself; they are
recorded, the momentum if the specification's `chooses_momentum` says so. `recorded`
returns numbers for further curves, (M, 1) each: those that the specification's
`records` names. `preconditioner` returns how the rule scales its steps, if the
specification's `has_preconditioner` says that this is known; where it `has_blocks`, and
does not scale entry by entry, it is given the problem as well.

A specification whose `product_from` names an epoch gets H w as `context.product` from
that epoch on. A rule of several gradients calls `context.gradient_at` at other weights,
and its specification says in `gradients_per_step` how many it takes.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from curvflow.schemas.kind import Samples
from curvflow.schemas.losses import AnyLoss
from curvflow.schemas.models import AnyModel
from curvflow.schemas.rules import Rule
from curvflow.tasks.networks.planned import planned_problem


class Functions(SimpleNamespace):
    """Functions of one rule of a family, by the names that a file of one rule has."""


def functions_of(rule: Rule) -> Any:
    """Return the functions of a rule: its file, or its entry in that of its family."""
    module = import_module(f"curvflow.tasks.rules.{rule.module}")
    return getattr(module, "RULES", {}).get(rule.rule, module)


def check_loss(rule: Rule, loss: AnyLoss) -> None:
    """Refuse a loss that a rule cannot be trained on, whatever the model and the data.

    Args:
        rule: whose specification says that it checks problems.
        loss: the loss.
    """
    functions = functions_of(rule)
    if hasattr(functions, "check_loss"):
        functions.check_loss(rule, loss)


def check_rule(rule: Rule, model: AnyModel, loss: AnyLoss, samples: Samples) -> None:
    """Refuse a rule for a model that is to be fitted to samples of some form.

    Args:
        rule: whose specification says that it checks problems.
        model: specification of the model.
        loss: the loss.
        samples: with shape, targets and outputs.
    """
    functions_of(rule).check(rule, planned_problem(model, loss, samples))
