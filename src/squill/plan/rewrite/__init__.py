"""Rules that make a plan cheaper without changing its answer."""

from squill.plan.rewrite.pipeline import rewrite

__all__ = ["rewrite"]
