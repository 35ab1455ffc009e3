"""Worlds to simulate: synthetic ones, and loaders of real data."""

from jaxrank.datasets.synthetic import synthetic
from jaxrank.datasets.yandex import yandex

__all__ = ["synthetic", "yandex"]
