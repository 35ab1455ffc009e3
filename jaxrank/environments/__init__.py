"""What one step offers: one file per environment."""

from jaxrank.environments.click_bandit import ClickBandit

__all__ = ["ClickBandit"]
