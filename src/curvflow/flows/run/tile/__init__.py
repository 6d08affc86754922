"""One tile: computed, checked, saved in snapshots."""
