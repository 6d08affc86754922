"""What a kind returns: variables with dimensions, units and a meaning."""

from __future__ import annotations

from dataclasses import dataclass

ELLIPSIS = "..."


@dataclass(frozen=True)
class Variable:
    """One array of a kind's result.

    Attributes:
        name: the field's standard name; a variable named like its only dimension is
            that dimension's coordinate.
        description: what it is, for `curvflow kinds` and the attributes of exports.
        dims: dimensions within one node; a last `...` stands for any further ones.
        dtype: NumPy's name, or `str`.
        units: `1` for pure numbers, else such as `loss / parameter^2`.
        bulk: too large for tables (weights, images); read only when asked for.
        series: runs along training or draws; figures take it by name, tables do not.
        sliced: the dimension, always the first, along which each index has a digest of
            its own, so that a consumer may depend on one slice.
        optional: some results lack it, as their parameters say.
        error_of: the variable whose error it is; where that is none but rounding, so is
            this, and two results are compared by the size of that variable.
        file: suffix of the file these bytes are, such as `.png`.
        judged_by: the variable of the same node that says whether this can be relied
            on: a text, `converged` or what is wrong, or a flag of this one's shape.
    """

    name: str
    description: str
    dims: tuple[str, ...] = ()
    dtype: str = "float64"
    units: str = "1"
    bulk: bool = False
    series: bool = False
    sliced: str | None = None
    optional: bool = False
    error_of: str | None = None
    file: str | None = None
    judged_by: str | None = None

    @property
    def tabular(self) -> bool:
        """Whether tables hold it without being asked."""
        return not (self.bulk or self.series or self.file)
