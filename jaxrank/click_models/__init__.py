"""How users read lists: one file per click model."""

from jaxrank.click_models.cascade import CascadeModel
from jaxrank.click_models.dependent_click import DependentClickModel
from jaxrank.click_models.position_based import PositionBasedModel
from jaxrank.registry import register

__all__ = ["CascadeModel", "DependentClickModel", "PositionBasedModel"]

register("cm", CascadeModel, kind="click_model")
register("dcm", DependentClickModel, kind="click_model")
register("pbm", PositionBasedModel, kind="click_model")
