"""What a team has stored: datasets, the plans that made them, runs and errors, in a database of SQLAlchemy's."""

from squill.catalog.catalog import Catalog, Entry, Lineage, RunRecord

__all__ = ["Catalog", "Entry", "Lineage", "RunRecord"]
