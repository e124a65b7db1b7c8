"""Rows in the order of progress: how they are numbered, when they are there, and how they are read."""
