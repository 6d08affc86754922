"""Two settings or more of every rule, for the tests that hold for all of them."""

from typing import Any

from curvflow.schemas.rules import all_rules

EXAMPLES = {
    "adagrad": [{"lr": 0.1}, {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1}],
    "adam": [{"lr": 0.01}, {"lr": 0.003, "beta1": 0.5, "weight_decay": 0.1}],
    "adamw": [{"lr": 0.01}, {"lr": 0.02, "amsgrad": True, "weight_decay": 0.1}],
    "gadam": [
        {"lr": 0.02, "start": 2},
        {"lr": 0.01, "start": 1, "every": 2, "count_before": True, "amsgrad": True},
        {"lr": 0.02, "start": 2, "lookahead": {"k": 2}},
    ],
    "gadam_auto": [
        {"lr": 0.02, "patience": 1},
        {"lr": 0.01, "patience": 2, "every": 1, "weight_decay": 0.1},
    ],
    "gadamx": [
        {"lr": 0.05, "start": 2},
        {"lr": 0.02, "start": 1, "p": 0.2, "eps_at": "inside", "every": 3},
    ],
    "lanczos_newton": [
        {"damping": 1.0, "num_steps": 3},
        {"lr": 0.5, "damping": 5.0, "num_steps": 2, "start": "random"},
        {"num_steps": 3, "matrix": "hessian", "damping_follows_lr": False},
    ],
    "lookahead": [
        {"inner": {"rule": "sgd", "lr": 0.1, "momentum": 0.9}},
        {"inner": {"rule": "adamw", "lr": 0.02}, "k": 3, "alpha": 0.8},
        {"inner": {"rule": "adamw", "lr": 0.01}, "k": 3},
        {"inner": {"rule": "metric", "lr": 0.1, "rate": 0.002}, "k": 2},
        {"inner": {"rule": "ngd", "lr": 0.1, "fisher": "exact"}, "k": 2},
    ],
    "ngd": [
        {"lr": 0.02, "num_samples": 3},
        {"lr": 0.1, "fisher": "exact"},
        {"lr": 0.1, "fisher": "empirical", "norm_match": True, "fisher_batch": 4},
    ],
    "ngd_online": [
        {"lr": 0.1},
        {"lr": 0.05, "alpha": 0.1, "share": 0.3},
        {"lr": 0.05, "rank": 1, "period": 2, "delta": 0.01},
    ],
    "padam": [
        {"lr": 0.05},
        {"lr": 0.02, "p": 0.2, "weight_decay": 0.1},
        {"eps_at": "inside", "decoupled": True, "amsgrad": False},
    ],
    "path_sgd": [{"lr": 0.01}, {"lr": 0.02, "p": 1.0}, {"lr": 0.01, "eps": 0.001}],
    "rmsprop": [
        {"lr": 0.01},
        {"lr": 0.003, "momentum": 0.9, "weight_decay": 0.01},
        {"lr": 0.003, "centered": True, "alpha": 0.9},
    ],
    "l2": [{"lr": 0.05, "rate": 0.001}, {"lr": 0.1, "rate": 0.01, "decay_factor": 1.0}],
    "l2_stopped": [
        {"lr": 0.05, "rate": 0.01, "tau": 2},
        {"lr": 0.05, "rate": 0.002, "tau": 3, "decay_factor": 1.0},
    ],
    "l2_stopped_selective": [
        {"lr": 0.05, "rate": 0.01, "selective_rate": 0.02, "omega": 0.1, "tau": 2},
        {"lr": 0.1, "rate": 0.001, "selective_rate": 0.01, "omega": 0.3, "tau": 3},
        {
            "lr": 0.05,
            "rate": 0.01,
            "selective_rate": 0.02,
            "omega": 0.1,
            "tau": 1,
            "maximum": "absolute",
            "at_equality": "protected",
        },
    ],
    "metric": [
        {"lr": 0.05, "rate": 0.001},
        {"lr": 0.1, "rate": 0.002},
        {"lr": 0.1, "rate": 0.002, "form": "raw"},
    ],
    "selective_l2": [
        {"lr": 0.05, "rate": 0.01, "omega": 0.1},
        {"lr": 0.1, "rate": 0.02, "omega": 0.3, "decay_factor": 1.0},
        {"lr": 0.05, "rate": 0.001, "omega": 0.3, "mask": "inverted"},
    ],
    "sgd": [
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.05, "momentum": 0.5, "nesterov": True},
        {"lr": 0.05, "schedule": {"kind": "step", "at": [1, 3], "factor": 0.5}},
    ],
    "spectral_sgd": [
        {"refresh_every": 2, "max_momentum": 0.3},
        {"momentum": "polyak", "max_momentum": 0.1, "num_steps": 8, "matrix": "ggn"},
        {"momentum": "nesterov_quadratic", "max_momentum": 0.2, "first_refresh": 3},
    ],
    "spectral_swa": [
        {"start": 2, "refresh_every": 2, "max_momentum": 0.3},
        {"start": 1, "lr": 0.05, "every": 3, "max_momentum": 0.2, "weight_decay": 0.01},
    ],
    "swa": [
        {"lr": 0.1, "momentum": 0.5, "start": 2},
        {"lr": 0.05, "start": 1, "every": 3, "count_before": True},
    ],
    "torch_optimizer": [
        {"optimizer": "torch.optim:NAdam", "lr": 0.01},
        {"optimizer": "torch.optim.NAdam", "lr": 0.02},
        {
            "optimizer": "torch.optim:Adafactor",
            "lr": 0.05,
            "schedule": {"kind": "step", "at": [2], "factor": 0.5},
        },
        {"optimizer": "torch.optim:SGD", "lr": 0.1, "kwargs": {"momentum": 0.5}},
    ],
}

# Settings of the training itself that a rule needs.
SETTINGS: dict[str, dict[str, Any]] = {"gadam_auto": {"validation_fraction": 0.3}}


def cases():
    """Return every rule with its settings; a rule without any fails by its name."""
    return [(name, EXAMPLES.get(name, [])) for name in all_rules()]
