"""Worlds to simulate: synthetic ones, and loaders of real data."""

from jaxrank.datasets.generated import synthetic, synthetic_ratings
from jaxrank.datasets.letor_files import LetorData, letor, synthetic_letor
from jaxrank.datasets.parameters import fitted_to, save_parameters, yandex
from jaxrank.datasets.queries import QuerySet
from jaxrank.datasets.ratings import movielens, topic_bandit, yahoo_music
from jaxrank.datasets.sessions import load_features, load_lists, load_sessions, load_yandex_log

__all__ = [
    "LetorData",
    "QuerySet",
    "fitted_to",
    "letor",
    "load_features",
    "load_lists",
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
