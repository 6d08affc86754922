"""Monitors of training loops: when to measure, what to keep, where to send it."""
