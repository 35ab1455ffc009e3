"""Worlds to simulate: synthetic ones, and loaders of real data."""

from jaxrank.datasets.letor import LetorData, letor, synthetic_letor
from jaxrank.datasets.queries import QuerySet
from jaxrank.datasets.sessions import load_sessions, load_yandex_log
from jaxrank.datasets.synthetic import synthetic
from jaxrank.datasets.yandex import save_parameters, yandex

__all__ = [
    "LetorData",
    "QuerySet",
    "letor",
    "load_sessions",
    "load_yandex_log",
    "save_parameters",
    "synthetic",
    "synthetic_letor",
    "yandex",
]
