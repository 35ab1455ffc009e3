"""jaxrank: a vectorized JAX simulator of online learning to rank for massively parallel runs."""

from jaxrank import click_models, datasets, testing
from jaxrank.click_models import (
    CascadeModel,
    ClickChainModel,
    DependentClickModel,
    DynamicBayesianModel,
    PositionBasedModel,
    UserBrowsingModel,
)
from jaxrank.devices import use_all_cores
from jaxrank.environments import ClickBandit, TopicBandit, sweep_trade_off
from jaxrank.plotting import plot_curves
from jaxrank.policies import (
    DCMKLUCB,
    PBMPIE,
    PBMTS,
    PBMUCB,
    BatchRank,
    BubbleRank,
    CascadeHybrid,
    CascadeKLUCB,
    CascadeLinTS,
    CascadeLinUCB,
    CascadeLSB,
    CascadeTS,
    CascadeUCB1,
    OracleRanking,
    RandomRanking,
    RankedExp3,
    RankedKLUCB,
    RankedUCB1,
    StaticRanking,
    TopRank,
)
from jaxrank.registry import available, make, register
from jaxrank.results import load, mean_and_error, per_step, save
from jaxrank.simulate import compare, simulate
from jaxrank.types import ClickModel, Environment, Policy, Query
from jaxrank.version import __version__

use_all_cores()

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
    "CascadeModel",
    "CascadeTS",
    "CascadeUCB1",
    "ClickBandit",
    "ClickChainModel",
    "ClickModel",
    "DependentClickModel",
    "DynamicBayesianModel",
    "Environment",
    "OracleRanking",
    "Policy",
    "PositionBasedModel",
    "Query",
    "RandomRanking",
    "RankedExp3",
    "RankedKLUCB",
    "RankedUCB1",
    "StaticRanking",
    "TopRank",
    "TopicBandit",
    "UserBrowsingModel",
    "__version__",
    "available",
    "click_models",
    "compare",
    "datasets",
    "load",
    "make",
    "mean_and_error",
    "per_step",
    "plot_curves",
    "register",
    "save",
    "simulate",
    "sweep_trade_off",
    "testing",
]
