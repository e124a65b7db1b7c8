"""Plans as one barrier stage, whose tasks send each other rows over Arrow Flight while all of them run."""
