"""Spans of models that are computed together."""

from __future__ import annotations


def spans(models: int, most: int) -> list[slice]:
    """Cut models into even spans, none of a single model: see decision 0003.

    Args:
        models: how many, M.
        most: models wanted per span; exceeded where a span of one were left.

    Returns:
        The spans in order; their lengths differ by at most one.
    """
    count = max(1, min(-(-models // max(2, most)), models // 2))
    bounds = [models * number // count for number in range(count + 1)]
    return [slice(*bounds[number : number + 2]) for number in range(count)]
