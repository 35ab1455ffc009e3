"""Worlds to simulate: synthetic ones, and loaders of real data."""

from jaxrank.datasets.letor import LetorData, letor, synthetic_letor
from jaxrank.datasets.queries import QuerySet
from jaxrank.datasets.ratings import movielens, topic_bandit, yahoo_music
from jaxrank.datasets.sessions import load_sessions, load_yandex_log
from jaxrank.datasets.synthetic import synthetic, synthetic_ratings
from jaxrank.datasets.yandex import save_parameters, yandex

__all__ = [
    "LetorData",
    "QuerySet",
    "letor",
    "load_sessions",
    "load_yandex_log",
    "movielens",
    "save_parameters",
    "synthetic",
    "synthetic_letor",
    "synthetic_ratings",
    "topic_bandit",
    "yahoo_music",
    "yandex",
]
