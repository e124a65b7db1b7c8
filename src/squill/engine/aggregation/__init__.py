"""Snapshot aggregates in two steps: a schedule turns rows into deltas and cells, folds give cells values."""
