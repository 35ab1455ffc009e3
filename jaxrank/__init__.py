"""jaxrank: a vectorized JAX simulator of online learning to rank for massively parallel runs."""

from jaxrank import click_models, datasets, testing
from jaxrank.click_models import (
    CascadeModel,
    ClickChainModel,
    DependentClickModel,
    DynamicBayesianModel,
    GradedUser,
    PositionBasedModel,
    UserBrowsingModel,
)
from jaxrank.core.registry import available, make, register
from jaxrank.core.types import ClickModel, Environment, Policy, Query
from jaxrank.core.version import __version__
from jaxrank.engine.devices import use_all_cores
from jaxrank.engine.estimation import Estimate, estimate
from jaxrank.engine.loop import Interrupted
from jaxrank.engine.simulation import compare, simulate
from jaxrank.environments import ClickBandit, QueryStream, TopicBandit, sweep_trade_off
from jaxrank.learning import counterfactual, losses, probes, rankers, relax
from jaxrank.learning.training import offline_ranknet, train
from jaxrank.output.plotting import plot_curves
from jaxrank.output.results import load, mean_and_error, per_step, save
from jaxrank.policies import (
    DBGD,
    DCMKLUCB,
    MGD,
    PBMPIE,
    PBMTS,
    PBMUCB,
    PDGD,
    BatchRank,
    BubbleRank,
    CascadeHybrid,
    CascadeKLUCB,
    CascadeLinTS,
    CascadeLinUCB,
    CascadeLSB,
    CascadeTS,
    CascadeUCB1,
    EpsilonGreedy,
    FixedRanker,
    OracleRanking,
    PairRank,
    RandomRanking,
    RankedExp3,
    RankedKLUCB,
    RankedUCB1,
    SGDRankNet,
    StaticRanking,
    TopRank,
)
from jaxrank.studies.sweeps import sweep
from jaxrank.studies.tuning import tune

use_all_cores()

__all__ = [
    "DBGD",
    "DCMKLUCB",
    "MGD",
    "PBMPIE",
    "PBMTS",
    "PBMUCB",
    "PDGD",
    "BatchRank",
    "BubbleRank",
    "CascadeHybrid",
    "CascadeKLUCB",
    "CascadeLSB",
    "CascadeLinTS",
    "CascadeLinUCB",
    "CascadeModel",
    "CascadeTS",
    "CascadeUCB1",
    "ClickBandit",
    "ClickChainModel",
    "ClickModel",
    "DependentClickModel",
    "DynamicBayesianModel",
    "Environment",
    "EpsilonGreedy",
    "Estimate",
    "FixedRanker",
    "GradedUser",
    "Interrupted",
    "OracleRanking",
    "PairRank",
    "Policy",
    "PositionBasedModel",
    "Query",
    "QueryStream",
    "RandomRanking",
    "RankedExp3",
    "RankedKLUCB",
    "RankedUCB1",
    "SGDRankNet",
    "StaticRanking",
    "TopRank",
    "TopicBandit",
    "UserBrowsingModel",
    "__version__",
    "available",
    "click_models",
    "compare",
    "counterfactual",
    "datasets",
    "estimate",
    "load",
    "losses",
    "make",
    "mean_and_error",
    "offline_ranknet",
    "per_step",
    "plot_curves",
    "probes",
    "rankers",
    "register",
    "relax",
    "save",
    "simulate",
    "sweep",
    "sweep_trade_off",
    "testing",
    "train",
    "tune",
]
