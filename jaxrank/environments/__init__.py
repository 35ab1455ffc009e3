"""What one step offers: one file per environment."""

from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.environments.query_stream import QueryStream

__all__ = ["ClickBandit", "QueryStream"]
