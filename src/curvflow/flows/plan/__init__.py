"""What would run, and why."""
