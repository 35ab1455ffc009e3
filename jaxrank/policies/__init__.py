"""How lists are chosen and learnt: one file per algorithm, closely related algorithms together."""

from jaxrank.core.registry import register
from jaxrank.policies.baselines import OracleRanking, RandomRanking, StaticRanking
from jaxrank.policies.batchrank import BatchRank
from jaxrank.policies.bubblerank import BubbleRank
from jaxrank.policies.cascade import DCMKLUCB, CascadeKLUCB, CascadeTS, CascadeUCB1
from jaxrank.policies.delayed import Delayed
from jaxrank.policies.dueling import DBGD, MGD
from jaxrank.policies.forgetting_cascade import CascadeDUCB, CascadeSWUCB
from jaxrank.policies.glrt_cascade import GLRTCascadeKLUCB, GLRTCascadeUCB
from jaxrank.policies.grab import GRAB
from jaxrank.policies.linear_cascade import CascadeHybrid, CascadeLinTS, CascadeLinUCB, CascadeLSB
from jaxrank.policies.olranknet import OLLambdaRank, OLRankNet
from jaxrank.policies.p2neurrank import P2NeurRank
from jaxrank.policies.pairrank import PairRank
from jaxrank.policies.pbmhb import PBMHB
from jaxrank.policies.pdgd import PDGD, NeuralPDGD
from jaxrank.policies.position_based import PBMPIE, PBMTS, PBMUCB
from jaxrank.policies.ranked import RankedExp3, RankedKLUCB, RankedUCB1
from jaxrank.policies.ranknet import EpsilonGreedy, FixedRanker, SGDRankNet
from jaxrank.policies.recurrank import RecurRank
from jaxrank.policies.toprank import TopRank
from jaxrank.policies.unirank import UniRank

__all__ = [
    "DBGD",
    "DCMKLUCB",
    "GRAB",
    "MGD",
    "PBMHB",
    "PBMPIE",
    "PBMTS",
    "PBMUCB",
    "PDGD",
    "BatchRank",
    "BubbleRank",
    "CascadeDUCB",
    "CascadeHybrid",
    "CascadeKLUCB",
    "CascadeLSB",
    "CascadeLinTS",
    "CascadeLinUCB",
    "CascadeSWUCB",
    "CascadeTS",
    "CascadeUCB1",
    "Delayed",
    "EpsilonGreedy",
    "FixedRanker",
    "GLRTCascadeKLUCB",
    "GLRTCascadeUCB",
    "NeuralPDGD",
    "OLLambdaRank",
    "OLRankNet",
    "OracleRanking",
    "P2NeurRank",
    "PairRank",
    "RandomRanking",
    "RankedExp3",
    "RankedKLUCB",
    "RankedUCB1",
    "RecurRank",
    "SGDRankNet",
    "StaticRanking",
    "TopRank",
    "UniRank",
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
register("cascade_ducb", CascadeDUCB)
register("cascade_swucb", CascadeSWUCB)
register("glrt_cascade_ucb", GLRTCascadeUCB)
register("glrt_cascade_klucb", GLRTCascadeKLUCB)
register("ranked_exp3", RankedExp3)
register("ranked_ucb1", RankedUCB1)
register("ranked_klucb", RankedKLUCB)
register("pbm_ucb", PBMUCB)
register("pbm_ts", PBMTS)
register("pbm_pie", PBMPIE)
register("pb_mhb", PBMHB)
register("grab", GRAB)
register("unirank", UniRank)
register("recurrank", RecurRank)
register("cascade_lin_ucb", CascadeLinUCB)
register("cascade_lin_ts", CascadeLinTS)
register("cascade_lsb", CascadeLSB)
register("cascade_hybrid", CascadeHybrid)
register("pairrank", PairRank)
register("pdgd", PDGD)
register("dbgd", DBGD)
register("mgd", MGD)
register("epsilon_greedy", EpsilonGreedy)
register("sgd_ranknet", SGDRankNet)
register("neural_pdgd", NeuralPDGD)
register("p2neurrank", P2NeurRank)
register("ol_ranknet", OLRankNet)
register("ol_lambdarank", OLLambdaRank)
