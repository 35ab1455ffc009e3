"""Small click bandits that several tests share."""

import numpy as np

import jaxrank as jr

MODELS = ("cm", "dcm", "pbm")


def click_model(name, num_items, seed, num_queries=None):
    """Well separated attractions in random order: policies reach decisions within a few thousand steps."""
    rng = np.random.default_rng(seed)
    shape = (num_items,) if num_queries is None else (num_queries, num_items)
    attraction = rng.permuted(np.broadcast_to(np.linspace(0.02, 0.6, num_items), shape), axis=-1)
    if name == "cm":
        return jr.CascadeModel(attraction)
    if name == "dcm":
        return jr.DependentClickModel(attraction, np.linspace(0.8, 0.3, num_items))
    return jr.PositionBasedModel(attraction, np.linspace(1, 0.4, num_items))


def worst_first(model):
    """The base ranking that a re-ranker has most to do with."""
    return np.argsort(np.asarray(model.attraction), axis=-1)
