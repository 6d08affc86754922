"""Monitors of training loops: when to measure, what is kept, and where it is sent."""
