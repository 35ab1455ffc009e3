"""Environments, which give a step its query, clicks and metrics: one file per environment."""

from jaxrank.environments.changing import Changing, change
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.environments.corrupted import Corrupted
from jaxrank.environments.query_stream import QueryStream
from jaxrank.environments.topic_bandit import TopicBandit, sweep_trade_off

__all__ = ["Changing", "ClickBandit", "Corrupted", "QueryStream", "TopicBandit", "change", "sweep_trade_off"]
