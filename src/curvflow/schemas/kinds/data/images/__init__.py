"""Images as data."""
