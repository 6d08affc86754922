"""One tile: computed, checked, kept."""
