"""The queries of the paper's evaluation: click-through rates, TPC-H's query 3, words that go with a word."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import squill as sq
from benchmarks.progressive.tables import TERM
from squill.plan.assignment import Assignment

__all__ = ["BEST", "best_orders", "click_through_rate", "correlated_words", "dimensions"]

BEST = 100
DAY = date(1995, 3, 15)
SEGMENT = 1
SUPPORT = 20
"""Words that hardly anybody searches for say nothing."""


def click_through_rate(folder: Path) -> sq.Stream:
    shown = sq.scan(folder / "impressions").group_aggregate("ad", shown=sq.count())
    clicked = sq.scan(folder / "clicks").group_aggregate("ad", clicked=sq.count())
    return clicked.join(shown, on="ad").select("ad", rate=sq.col("clicked") / sq.col("shown"))


def best_orders(folder: Path) -> sq.Stream:
    customers = sq.scan(folder / "customer.parquet", name="customer").where(sq.col("c_mktsegment") == SEGMENT)
    orders = sq.scan(folder / "orders").where(sq.col("o_orderdate") < DAY)
    lines = sq.scan(folder / "lineitem").where(sq.col("l_shipdate") > DAY)
    revenue = sq.col("l_extendedprice") * (1 - sq.col("l_discount"))
    sold = orders.join(customers, left_on="o_custkey", right_on="c_custkey").join(
        lines.select("l_orderkey", revenue=revenue), left_on="o_orderkey", right_on="l_orderkey"
    )
    keys = ["o_orderkey", "o_orderdate", "o_shippriority"]
    return sold.group_aggregate(keys, revenue=sq.sum("revenue")).aggregate(best=sq.top_k("revenue", 10))


def correlated_words(folder: Path) -> sq.Stream:
    """Per user, how often each word was searched for, and whether the term was; per word, how well both go together."""
    searched = sq.scan(folder / "searches")
    per_user = searched.group_aggregate(["user", "word"], n=sq.count())
    with_term = searched.where(sq.col("word") == TERM).select("user").distinct()
    beside = per_user.join(with_term, on="user").group_aggregate("word", beside=sq.sum("n"))
    of_all = per_user.group_aggregate("word", n=sq.sum("n")).where(sq.col("n") >= SUPPORT)
    goodness = sq.col("beside") / sq.col("n").sqrt()
    return of_all.join(beside, on="word").select("word", goodness=goodness).aggregate(best=sq.top_k("goodness", BEST))


def dimensions(query: sq.Stream) -> Mapping[str, Assignment]:
    """Return the assignments of what is not stored in the order of progress."""
    return {"customer": sq.progress.at_start()} if "customer" in query.explain() else {}
