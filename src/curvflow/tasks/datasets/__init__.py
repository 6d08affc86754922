"""What data kinds share."""
