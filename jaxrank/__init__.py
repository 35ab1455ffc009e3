"""jaxrank: a vectorized JAX simulator of online learning to rank for massively parallel runs."""

from jaxrank import datasets, testing
from jaxrank.click_models import CascadeModel, DependentClickModel, PositionBasedModel
from jaxrank.environments import ClickBandit
from jaxrank.plotting import plot_curves
from jaxrank.policies import BubbleRank, OracleRanking, RandomRanking, StaticRanking
from jaxrank.registry import available, make, register
from jaxrank.results import load, mean_and_error, per_step, save
from jaxrank.simulate import compare, simulate
from jaxrank.types import ClickModel, Environment, Policy, Query
from jaxrank.version import __version__

__all__ = [
    "BubbleRank",
    "CascadeModel",
    "ClickBandit",
    "ClickModel",
    "DependentClickModel",
    "Environment",
    "OracleRanking",
    "Policy",
    "PositionBasedModel",
    "Query",
    "RandomRanking",
    "StaticRanking",
    "__version__",
    "available",
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
    "testing",
]
