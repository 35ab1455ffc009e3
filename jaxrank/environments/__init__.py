"""Environments, which give a step its query, clicks and metrics: one file per environment."""

from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.environments.query_stream import QueryStream
from jaxrank.environments.topic_bandit import TopicBandit, sweep_trade_off

__all__ = ["ClickBandit", "QueryStream", "TopicBandit", "sweep_trade_off"]
