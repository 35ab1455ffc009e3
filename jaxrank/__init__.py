"""jaxrank: a vectorized JAX simulator of online learning to rank for massively parallel runs.

What is public is ``__all__``, nothing else: modules and names behind it may move.
"""

from jaxrank import click_models, datasets, environments, policies, testing
from jaxrank.click_models import (
    CascadeModel,
    ClickChainModel,
    DependentClickModel,
    DocumentClickRate,
    DynamicBayesianModel,
    GlobalClickRate,
    GradedUser,
    PositionBasedModel,
    RankClickRate,
    RankDocumentClickRate,
    SimplifiedDynamicBayesianModel,
    TrustBiasModel,
    UserBrowsingModel,
)
from jaxrank.core import bounds, checks
from jaxrank.core.batching import rarely
from jaxrank.core.pytrees import array, derived, over_instances, pytree, static
from jaxrank.core.ranking import lookup, top_items
from jaxrank.core.registry import available, make, register
from jaxrank.core.types import ClickModel, Environment, Policy, Query
from jaxrank.core.version import __version__
from jaxrank.engine import distributed
from jaxrank.engine.devices import use_all_cores
from jaxrank.engine.estimation import Estimate, estimate
from jaxrank.engine.loop import Interrupted
from jaxrank.engine.simulation import compare, simulate
from jaxrank.environments import *  # noqa: F403
from jaxrank.learning import counterfactual, losses, off_policy, probes, rankers, relax, unbiased
from jaxrank.learning.off_policy import evaluate
from jaxrank.learning.training import offline_ranknet, train
from jaxrank.output.plotting import plot_curves
from jaxrank.output.results import load, mean_and_error, per_step, save
from jaxrank.policies import *  # noqa: F403
from jaxrank.studies.sweeps import sweep
from jaxrank.studies.tuning import tune

use_all_cores()

__all__ = [
    "CascadeModel",
    "ClickChainModel",
    "ClickModel",
    "DependentClickModel",
    "DocumentClickRate",
    "DynamicBayesianModel",
    "Environment",
    "Estimate",
    "GlobalClickRate",
    "GradedUser",
    "Interrupted",
    "Policy",
    "PositionBasedModel",
    "Query",
    "RankClickRate",
    "RankDocumentClickRate",
    "SimplifiedDynamicBayesianModel",
    "TrustBiasModel",
    "UserBrowsingModel",
    "__version__",
    "array",
    "available",
    "bounds",
    "checks",
    "click_models",
    "compare",
    "counterfactual",
    "datasets",
    "derived",
    "distributed",
    "estimate",
    "evaluate",
    "load",
    "lookup",
    "losses",
    "make",
    "mean_and_error",
    "off_policy",
    "offline_ranknet",
    "over_instances",
    "per_step",
    "plot_curves",
    "probes",
    "pytree",
    "rankers",
    "rarely",
    "register",
    "relax",
    "save",
    "simulate",
    "static",
    "sweep",
    "testing",
    "top_items",
    "train",
    "tune",
    "unbiased",
]
__all__ += environments.__all__
__all__ += policies.__all__
