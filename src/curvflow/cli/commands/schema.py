"""`curvflow schema`: the JSON Schema of a study."""

from __future__ import annotations

from curvflow.cli.arguments import print_json


def command() -> None:
    """Print the JSON Schema of a study, for editors."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.schemas.study.jsonschema import study_schema

    print_json(study_schema())
