"""Shards in Spark tasks. The only folder that imports pyspark, and only once a cluster is asked for."""

from squill.runtime.spark.session import start_runtime

__all__ = ["start_runtime"]
