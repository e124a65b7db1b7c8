"""Loops over the bytes of saved state."""
