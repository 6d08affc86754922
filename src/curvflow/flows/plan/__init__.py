"""Plans: the nodes that would run, and why."""
