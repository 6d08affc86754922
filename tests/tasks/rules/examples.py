"""Two settings or more of every rule, for the tests that hold for all of them."""

from curvflow.schemas.rules import all_rules

EXAMPLES = {
    "adam": [{"lr": 0.01}, {"lr": 0.003, "beta1": 0.5, "weight_decay": 0.1}],
    "sgd": [
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.05, "momentum": 0.5, "nesterov": True},
        {"lr": 0.05, "schedule": {"kind": "step", "at": [1, 3], "factor": 0.5}},
    ],
}

# Settings of the training itself that a rule needs.
SETTINGS = {}


def cases():
    """Return every rule with its settings; a rule without any fails by its name."""
    return [(name, EXAMPLES.get(name, [])) for name in all_rules()]
