"""Which column of a table an expectation is held against."""

import pytest

from curvflow.flows.results.check import MEASURED
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.nodes import Table

TABLES = [
    kind
    for kind in all_kinds().values()
    if issubclass(kind.returns, Table) and kind.output("quantity")
]


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.name)
def test_every_quantity_of_a_table_has_one_column_that_measures_it(kind):
    columns = [v.name for v in kind.outputs if v.dims == ("quantity",)]
    assert len([name for name in columns if name in MEASURED]) == 1


def test_there_are_tables():
    assert {"aggregate.summary", "aggregate.rank"} < {kind.name for kind in TABLES}
