"""Declarations and records: studies, kinds, receipts. No disk, no torch."""
