"""How lists are chosen and learnt: one file per algorithm, close kin together."""

from jaxrank.policies.baselines import OracleRanking, RandomRanking, StaticRanking
from jaxrank.policies.batchrank import BatchRank
from jaxrank.policies.bubblerank import BubbleRank
from jaxrank.policies.cascade import DCMKLUCB, CascadeKLUCB, CascadeTS, CascadeUCB1
from jaxrank.policies.linear_cascade import CascadeHybrid, CascadeLinTS, CascadeLinUCB, CascadeLSB
from jaxrank.policies.position_based import PBMPIE, PBMTS, PBMUCB
from jaxrank.policies.ranked import RankedExp3, RankedKLUCB, RankedUCB1
from jaxrank.policies.toprank import TopRank
from jaxrank.registry import register

__all__ = [
    "DCMKLUCB",
    "PBMPIE",
    "PBMTS",
    "PBMUCB",
    "BatchRank",
    "BubbleRank",
    "CascadeHybrid",
    "CascadeKLUCB",
    "CascadeLSB",
    "CascadeLinTS",
    "CascadeLinUCB",
    "CascadeTS",
    "CascadeUCB1",
    "OracleRanking",
    "RandomRanking",
    "RankedExp3",
    "RankedKLUCB",
    "RankedUCB1",
    "StaticRanking",
    "TopRank",
]

register("static", StaticRanking)
register("random", RandomRanking)
register("oracle", OracleRanking)
register("bubblerank", BubbleRank)
register("batchrank", BatchRank)
register("toprank", TopRank)
register("cascade_klucb", CascadeKLUCB)
register("cascade_ucb1", CascadeUCB1)
register("cascade_ts", CascadeTS)
register("dcm_klucb", DCMKLUCB)
register("ranked_exp3", RankedExp3)
register("ranked_ucb1", RankedUCB1)
register("ranked_klucb", RankedKLUCB)
register("pbm_ucb", PBMUCB)
register("pbm_ts", PBMTS)
register("pbm_pie", PBMPIE)
register("cascade_lin_ucb", CascadeLinUCB)
register("cascade_lin_ts", CascadeLinTS)
register("cascade_lsb", CascadeLSB)
register("cascade_hybrid", CascadeHybrid)
