"""Shards on the threads of this process."""

from squill.runtime.local.runtime import LocalRuntime

__all__ = ["LocalRuntime"]
