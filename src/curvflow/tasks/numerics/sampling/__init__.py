"""Samplers of localised tempered posteriors, all chains in one batched program."""
