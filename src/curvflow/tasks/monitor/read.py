"""Numbers that a monitor has measured in another training loop."""

from __future__ import annotations

import numpy as np

from curvflow.schemas.kinds.monitor.read import KIND
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.monitor.datasets import with_flags
from curvflow.tasks.registry import Machine, computes_each


@computes_each("monitor.read")
def read(member: Member, machine: Machine) -> Outcome:
    """Take the variables of the file.

    Args:
        member: the arrays of the file.
        machine: not used.

    Returns:
        All that is declared and in the file, with the counts.
    """
    arrays = with_flags(member.files["path"])
    postponed = arrays["postponed"].sum() if "postponed" in arrays else 0
    counts = {
        "num_measurements": np.array(len(arrays["step"]), dtype=np.int64),
        "num_postponed": np.array(postponed, dtype=np.int64),
    }
    known = {variable.name for variable in KIND.outputs}
    return Outcome({n: a for n, a in arrays.items() if n in known} | counts)
