"""The self-checks, one module each."""
