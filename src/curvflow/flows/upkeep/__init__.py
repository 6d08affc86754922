"""Keep a store small and sound: collect, verify, pin."""
