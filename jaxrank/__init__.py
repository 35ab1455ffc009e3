"""jaxrank: a vectorized JAX simulator of online learning to rank for massively parallel runs."""

from jaxrank.click_models import CascadeModel, DependentClickModel, PositionBasedModel
from jaxrank.environments import ClickBandit
from jaxrank.policies import BubbleRank, OracleRanking, RandomRanking, StaticRanking
from jaxrank.results import load, mean_and_error, per_step, save
from jaxrank.simulate import compare, simulate
from jaxrank.version import __version__

__all__ = [
    "BubbleRank", "CascadeModel", "ClickBandit", "DependentClickModel", "OracleRanking", "PositionBasedModel",
    "RandomRanking", "StaticRanking", "__version__", "compare", "load", "mean_and_error", "per_step", "save", "simulate",
]
