"""How lists are chosen and learnt: one file per algorithm."""

from jaxrank.policies.baselines import OracleRanking, RandomRanking, StaticRanking
from jaxrank.policies.bubblerank import BubbleRank

__all__ = ["BubbleRank", "OracleRanking", "RandomRanking", "StaticRanking"]
