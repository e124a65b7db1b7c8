"""Functions that check the user's arguments and build plan nodes, one module per family.

The fluent classes only call these: what may be asked for, and how it is refused, is decided here.
"""
