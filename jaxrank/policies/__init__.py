"""How lists are chosen and learnt: one file per algorithm."""

from jaxrank.policies.baselines import OracleRanking, RandomRanking, StaticRanking
from jaxrank.policies.bubblerank import BubbleRank
from jaxrank.registry import register

__all__ = ["BubbleRank", "OracleRanking", "RandomRanking", "StaticRanking"]

register("static", StaticRanking)
register("random", RandomRanking)
register("oracle", OracleRanking)
register("bubblerank", BubbleRank)
