"""Small click bandits that several tests share."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxrank as jr
from jaxrank.core.pytrees import array, pytree

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


@pytree
class HastyBatchRank(jr.BatchRank):
    """BatchRank with the bounds of a horizon of 2, however long it runs: it decides within the steps of a test."""

    def _log_horizon(self):
        return jnp.log(jnp.float32(2))


@pytree
class AnyUsers:
    """One of the three click models: which one is data, so that a compiled program serves them all.

    Its clicks are those of the model itself.
    """

    which: object = array(ndim=0, dtype=jnp.int32)  # of MODELS
    attraction: object = array(ndim=1)
    termination: object = array(ndim=1)
    chi: object = array(ndim=1)  # not called examination: policies would be told

    def _ask(self, method, *args):
        cm = jr.CascadeModel(self.attraction)
        dcm = jr.DependentClickModel(self.attraction, self.termination)
        pbm = jr.PositionBasedModel(self.attraction, self.chi)
        return jax.lax.switch(self.which, [getattr(users, method) for users in (cm, dcm, pbm)], *args)

    def sample(self, key, ranking):
        return self._ask("sample", key, ranking)

    def click_probability(self, ranking):
        return self._ask("click_probability", ranking)

    def examination_probability(self, ranking):
        return self._ask("examination_probability", ranking)

    def reward(self, ranking, top=None):
        return self._ask("reward", ranking[:top])

    def log_likelihood(self, ranking, clicks):
        return self._ask("log_likelihood", ranking, clicks)

    def optimal_ranking(self, list_size, top=None):
        return jr.CascadeModel(self.attraction).optimal_ranking(list_size, top)


def any_users(name, num_items, seed):
    """``click_model`` for policies that learn from clicks alone."""
    model = click_model(name, num_items, seed)
    ones = np.ones(num_items)
    termination, chi = getattr(model, "termination", ones), getattr(model, "examination", ones)
    return AnyUsers(MODELS.index(name), model.attraction, termination, chi)


def worst_first(model):
    """The base ranking that a re-ranker has most to do with."""
    return np.argsort(np.asarray(model.attraction), axis=-1)


def topic_bandit(num_items=15, list_size=5, num_topics=4, num_features=3, num_users=None, seed=0, **options):
    """Random items and users: attractions from 0 to about 0.5."""
    rng = np.random.default_rng(seed)
    users = () if num_users is None else (num_users,)
    topics = rng.uniform(0.1, 0.6, (num_items, num_topics)) * (rng.uniform(size=(num_items, num_topics)) < 0.6)
    features = rng.normal(size=(num_items, num_features))
    features /= np.linalg.norm(features, axis=1, keepdims=True) / rng.uniform(0.5, 1, (num_items, 1))
    relevance = rng.normal(size=(*users, num_features))
    relevance /= 2 * np.linalg.norm(relevance, axis=-1, keepdims=True)
    preference = rng.dirichlet(np.ones(num_topics), users or None)
    return jr.TopicBandit(topics, features, preference, relevance, list_size=list_size, **options)
