"""How users read lists: one file per click model."""

from jaxrank.click_models.cascade import CascadeModel
from jaxrank.click_models.dependent_click import DependentClickModel
from jaxrank.click_models.position_based import PositionBasedModel

__all__ = ["CascadeModel", "DependentClickModel", "PositionBasedModel"]
