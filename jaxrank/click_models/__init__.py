"""How users read lists: one file per click model."""

from jaxrank.click_models.cascade import CascadeModel
from jaxrank.click_models.click_chain import ClickChainModel
from jaxrank.click_models.click_rates import DocumentClickRate, GlobalClickRate, RankClickRate, RankDocumentClickRate
from jaxrank.click_models.dependent_click import DependentClickModel
from jaxrank.click_models.dynamic_bayesian import DynamicBayesianModel, SimplifiedDynamicBayesianModel
from jaxrank.click_models.fitting import evaluate, fit, fit_to_features
from jaxrank.click_models.graded import GradedUser, graded_user
from jaxrank.click_models.paper_assumptions import assumptions
from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.click_models.trust_bias import TrustBiasModel
from jaxrank.click_models.user_browsing import UserBrowsingModel
from jaxrank.core.registry import register

__all__ = [
    "CascadeModel",
    "ClickChainModel",
    "DependentClickModel",
    "DocumentClickRate",
    "DynamicBayesianModel",
    "GlobalClickRate",
    "GradedUser",
    "PositionBasedModel",
    "RankClickRate",
    "RankDocumentClickRate",
    "SimplifiedDynamicBayesianModel",
    "TrustBiasModel",
    "UserBrowsingModel",
    "assumptions",
    "evaluate",
    "fit",
    "fit_to_features",
    "graded_user",
]

register("cm", CascadeModel, kind="click_model")
register("dcm", DependentClickModel, kind="click_model")
register("pbm", PositionBasedModel, kind="click_model")
register("ubm", UserBrowsingModel, kind="click_model")
register("dbn", DynamicBayesianModel, kind="click_model")
register("ccm", ClickChainModel, kind="click_model")
register("sdbn", SimplifiedDynamicBayesianModel, kind="click_model")
register("trust", TrustBiasModel, kind="click_model")
register("gctr", GlobalClickRate, kind="click_model")
register("rctr", RankClickRate, kind="click_model")
register("dctr", DocumentClickRate, kind="click_model")
register("rdctr", RankDocumentClickRate, kind="click_model")
