"""Whether variables that parameters name are single numbers of each node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from curvflow.errors import nearest
from curvflow.schemas.kind import Misnomer, Taken


def not_single(
    field: str,
    names: Sequence[str],
    taken: Taken,
    *,
    along: Collection[str | None] = (),
) -> Iterator[Misnomer]:
    """Find names of variables that are no single number of one stage.

    Args:
        field: the parameter that names them.
        names: the variables; those that no stage has are found elsewhere.
        taken: the kinds of the stages taken.
        along: dimensions that they may have all the same.

    Yields:
        What is wrong with a name.
    """
    for name in names:
        having = {
            stage: variable
            for stage, kind in taken["of"].items()
            if (variable := kind.output(name)) is not None
        }
        dims = [d for v in having.values() for d in v.dims if d not in along]
        if dims:
            singles = {
                variable.name
                for kind in taken["of"].values()
                for variable in kind.outputs
                if not {*variable.dims} - {*along} and variable.dtype != "str"
            }
            message = (
                f"expected a single number per node, got '{name}' with "
                f"{', '.join(dict.fromkeys(dims))}"
            )
            yield (field,), message, nearest(name, singles)
        elif len(having) > 1:
            message = (
                f"expected a variable of one stage, got '{name}' of "
                f"{' and '.join(having)}"
            )
            yield (field,), message, "Name only one of them in `of`."
