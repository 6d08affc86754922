"""What several learning rules share."""
