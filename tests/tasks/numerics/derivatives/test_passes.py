"""Spans of models."""

import pytest

from curvflow.tasks.numerics.derivatives.passes import models_together, spans


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 100])
@pytest.mark.parametrize("models", [2, 3, 4, 5, 7, 8, 9, 80, 511])
def test_spans_cover_all_models_evenly_and_none_is_of_width_one(models, most):
    result = [range(models)[span] for span in spans(models, most)]
    assert [model for span in result for model in span] == list(range(models))
    lengths = [len(span) for span in result]
    assert min(lengths) >= 2
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) <= max(most, 3)


def test_a_single_model_is_a_span_of_its_own():
    assert spans(1, 8) == [slice(0, 1)]


@pytest.mark.parametrize("models", [1, 2, 5])
def test_models_that_need_no_copy_may_go_one_by_one(models):
    each = [slice(number, number + 1) for number in range(models)]
    assert spans(models, 1, fewest=1) == each


@pytest.mark.parametrize("most", [0, 1, 2, 7, 8, 100])
def test_only_modules_of_which_few_fit_go_one_by_one(most):
    assert models_together(most, has_plain_path=False) == max(2, most)
    assert models_together(most, has_plain_path=True) == (1 if most < 8 else most)
