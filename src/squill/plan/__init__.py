"""The logical plan: what a query means, before anything decides how it runs."""
