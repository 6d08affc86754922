"""Two settings or more of every rule, for the tests that hold for all of them.

The file of a rule's tests has them as `SETTINGS`, and as `TRAINING` the settings of the
training itself that the rule needs.
"""

import ast
from pathlib import Path
from typing import Any

from curvflow.schemas.rules import all_rules


def _constant(rule: str, name: str, default: Any) -> Any:
    """Return a constant of the file of a rule's tests, which is not imported."""
    paths = Path(__file__).parent.rglob(f"test_{rule}.py")
    tree = ast.parse("".join(path.read_text(encoding="utf-8") for path in paths))
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)]) if target == name:
                return ast.literal_eval(statement.value)
    return default


EXAMPLES: dict[str, list[dict[str, Any]]] = {
    rule: _constant(rule, "SETTINGS", []) for rule in all_rules()
}
SETTINGS: dict[str, dict[str, Any]] = {
    rule: _constant(rule, "TRAINING", {}) for rule in all_rules()
}


def cases():
    """Return every rule with its settings; a rule without any fails by its name."""
    return list(EXAMPLES.items())
