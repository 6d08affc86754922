"""Settings of the optimisers of Botev (2020), Algorithm 1 of section 4.4.

Adaptation of both dampings every 5 and every 20 steps by 0.95 with one threshold, 0.75,
no momentum, and averages of the factors that keep 0.9, which the source also leaves out
(`factor_decay: 0`). It does not print the dampings to begin with, "reasonably large",
nor the penalty: 1 and 1e-5 are chosen here.

Reference:
    Botev (2020), The Gauss-Newton matrix for Deep Learning models and its applications,
    thesis, sections 4.2.2, 4.3 and 4.4.
"""

from __future__ import annotations

from typing import Any

_COMMON: dict[str, Any] = {
    "rule": "kfac",
    "l2": 1e-5,
    "damping": 1.0,
    "damping_adaptation_interval": 5,
    "damping_adaptation_decay": 0.95,
    "damping_lower_threshold": 0.75,
    "damping_upper_threshold": 0.75,
    "preconditioner_damping": 1.0,
    "preconditioner_adaptation_interval": 20,
    "preconditioner_adaptation_decay": 0.95,
    "factor_decay": 0.9,
}

PRESETS = {
    "kfac": {"printed": {**_COMMON, "fisher_type": "mc"}},
    "kflr": {"printed": {**_COMMON, "fisher_type": "type-2"}},
    "kfra": {"printed": {**_COMMON, "fisher_type": "recursive"}},
}
