"""Linear operators and their algebra."""
