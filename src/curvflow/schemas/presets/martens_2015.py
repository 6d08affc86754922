"""Settings of K-FAC as Martens and Grosse (2015) have it, with momentum.

The damping of the model changes every T1 = 5 steps by (19/20)^T1, thresholds 1/4 and
3/4, that of the factors every T2 = 20 steps: of its root the source takes the factor
(19/20)^(T2/2). Factors are averages that keep at most 0.95, inverted every T3 = 20
steps (there in each of the first three steps as well); both dampings begin with 150.

Reference:
    Martens and Grosse (2015), Optimizing Neural Networks with Kronecker-factored
    Approximate Curvature, arXiv:1503.05671, sections 5 to 7 and Algorithm 2.
"""

from __future__ import annotations

PRESETS = {
    "kfac": {
        "printed": {
            "rule": "kfac",
            "fisher_type": "mc",
            "l2": 1e-5,
            "damping": 150.0,
            "damping_adaptation_interval": 5,
            "damping_adaptation_decay": 0.95**5,
            "damping_lower_threshold": 0.25,
            "damping_upper_threshold": 0.75,
            "preconditioner_damping": 150.0,
            "preconditioner_adaptation_interval": 20,
            "preconditioner_adaptation_decay": 0.95**20,
            "momentum": "quadratic",
            "factor_decay": 0.95,
            "inv_update_steps": 20,
        }
    }
}
