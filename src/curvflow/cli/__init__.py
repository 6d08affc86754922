"""The command line: one file per command."""

from curvflow.schemas.long_lived import paused_gc


def main() -> None:
    """Load the command line, and run it."""
    with paused_gc():  # what is imported stays
        from curvflow.cli.app import main as run_command
    run_command()
