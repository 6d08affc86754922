"""How one ASKS: one file per command."""
