"""Cascading bandits with features: one ridge regression, one greedy list, several feature maps φ(a | S).

φ(a | S) is the feature vector of item a below the items S. Some of its coordinates are modular, φ_j = f_a(j); the
others are covered, φ_j = Δ_j(f_a | S) = f_a(j)·Π_{b ∈ S} (1 − f_b(j)) (``jaxrank.core.topics``):

====================================  ===========================  ==========
policy                                f                            covered
====================================  ===========================  ==========
CascadeLinUCB, CascadeLinTS           z, the relevance features    none
  with ``full=True``                  [x, z]                       none
CascadeLSB                            x, the topics                all
  with ``full=True``                  [x, z]                       all
CascadeHybrid                         [x, z]                       those of x
====================================  ===========================  ==========

O = I + Σ φφᵀ and b = Σ φ·click, summed over the observed items, give ŵ = O⁻¹b. The observed items are those down to and
including the first click, or all if there is no click. The list is built from the top: the next item is the one with
the highest φᵀŵ + γ·sqrt(φᵀO⁻¹φ) or, in Thompson sampling, the highest φᵀw̃ for one sample w̃ ~ N(ŵ, γ²·O⁻¹) a step.

CascadeHybrid's H, M, B, u and y (its Algorithm 1, eq. 11 to 14) are this regression by block inversion; the tests
compare with the literal algorithm. Where the papers leave a choice:

- Scores within a millionth of the highest count as equal, and one of these items is taken at random. At the first step
  all items of normalised features have the same score, and only rounding errors tell them apart.
- CascadeLinUCB's paper caps its index at 1; here, as in CascadeHybrid's experiments, it is not capped.
- The papers' learning rate is 1: the ridge is I, whatever the noise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core import ridge
from jaxrank.core.checks import non_negative
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.ridge import Ridge
from jaxrank.core.topics import coverage_gains
from jaxrank.core.types import Array, Key, Query

_TIE = 1e-6  # relative to the highest score


class FeatureMap(NamedTuple):
    """φ(a | S) of all items."""

    features: Array  # float[p, L], f
    num_covered: int  # the number of covered coordinates, which come first; the others are modular


class LinearCascade:
    """The common part: the greedy list of a feature map, and the regression on the observed items."""

    gamma: Any

    def _feature_map(self, query: Query) -> FeatureMap:
        raise NotImplementedError

    def init(self, key: Key, query: Query) -> Ridge:
        return ridge.init(self._feature_map(query).features.shape[0])

    def rank(self, key: Key, state: Ridge, query: Query) -> Array:
        score_key, tie_key = jax.random.split(key)
        items = self._feature_map(query)
        words = jax.random.bits(tie_key, (query.num_items,), jnp.uint32)
        return _greedy(self._score(score_key, state, items), items, words, query.list_size)

    def _score(self, key: Key, state: Ridge, items: FeatureMap) -> Callable[[Array], Array]:
        return _optimism(state, items, self.gamma)

    def update(self, key: Key, state: Ridge, query: Query, ranking: Array, clicks: Array) -> Ridge:
        items = self._feature_map(query)
        shown = items.features.T[ranking]
        c = items.num_covered
        phi = jnp.concatenate([coverage_gains(shown[:, :c]), shown[:, c:]], axis=1)
        observed = jnp.cumsum(clicks) - clicks == 0
        return ridge.update(state, jnp.where(observed[:, None], phi, 0), clicks & observed, query.step)

    def statistics(self, state: Ridge) -> dict[str, Array]:
        """ŵ (of CascadeHybrid: θ̂, then β̂) and O⁻¹, for probes and tests."""
        return {"weights": state.weights, "inverse": state.inverse}


@pytree
class CascadeLinUCB(LinearCascade):
    """CascadeLinUCB: upper confidence bounds on a linear model of relevance.

    Args:
      gamma: γ, how much to explore.
      full: use the topics as features too (CascadeLinUCBFull in CascadeHybrid's experiments).

    Reference: Zong, Ni, Sung, Ke, Wen, Kveton: Cascading bandits for large-scale recommendation problems. UAI 2016.
    """

    gamma: Any = array(ndim=0, check=non_negative, default=1.0)
    full: bool = static(default=False)

    def _feature_map(self, query: Query) -> FeatureMap:
        return FeatureMap(_item_features(self, query, topics=self.full), num_covered=0)


@pytree
class CascadeLinTS(LinearCascade):
    """CascadeLinTS: Thompson sampling on a linear model of relevance.

    Args:
      gamma: γ, how much to explore.
      full: use the topics as features too.

    Reference: Zong, Ni, Sung, Ke, Wen, Kveton: Cascading bandits for large-scale recommendation problems. UAI 2016.
    """

    gamma: Any = array(ndim=0, check=non_negative, default=1.0)
    full: bool = static(default=False)

    def _feature_map(self, query: Query) -> FeatureMap:
        return FeatureMap(_item_features(self, query, topics=self.full), num_covered=0)

    def _score(self, key: Key, state: Ridge, items: FeatureMap) -> Callable[[Array], Array]:
        return _linear(sample_weights(key, state, self.gamma), items)


@pytree
class CascadeLSB(LinearCascade):
    """CascadeLSB: upper confidence bounds on a linear model of the gain in topic coverage.

    Args:
      gamma: γ, how much to explore.
      full: use the relevance features as topics too (CascadeLSBFull in CascadeHybrid's experiments). They are not
        probabilities: where they are negative, gains grow down the list. So other than for the other policies, its
        lists depend on the sign of each column, which a singular value decomposition leaves open.

    Reference: Hiranandani, Singh, Gupta, Burhanuddin, Wen, Kveton: Cascading linear submodular bandits: accounting for
    position bias and diversity in online learning to rank. UAI 2019.
    """

    gamma: Any = array(ndim=0, check=non_negative, default=1.0)
    full: bool = static(default=False)

    def _feature_map(self, query: Query) -> FeatureMap:
        features = _item_features(self, query, topics=True, relevance=self.full)
        return FeatureMap(features, num_covered=features.shape[0])


@pytree
class CascadeHybrid(LinearCascade):
    """CascadeHybrid: relevance and topical diversity, learnt together (Algorithm 1).

    Args:
      gamma: γ, how much to explore.
      exploration: "ucb", as in the paper, or "ts", Thompson sampling, which the paper leaves for future work.

    Reference: Li, Feng, de Rijke: A contextual-bandit approach to online learning to rank for relevance and diversity.
    arXiv:1912.00508, 2019.
    """

    gamma: Any = array(ndim=0, check=non_negative, default=1.0)
    exploration: str = static(default="ucb", choices=("ucb", "ts"))

    def _feature_map(self, query: Query) -> FeatureMap:
        features = _item_features(self, query, topics=True)
        assert query.topics is not None
        return FeatureMap(features, num_covered=query.topics.shape[1])

    def _score(self, key: Key, state: Ridge, items: FeatureMap) -> Callable[[Array], Array]:
        if self.exploration == "ts":
            return _linear(sample_weights(key, state, self.gamma), items)
        return _optimism(state, items, self.gamma)


def _item_features(policy: Any, query: Query, topics: bool, relevance: bool = True) -> Array:
    """float[p, L]: the items' topics x, relevance features z, or both, [x, z]."""
    parts = [("topics", query.topics)] * topics + [("features", query.features)] * relevance
    for name, part in parts:
        if part is None:
            raise ValueError(
                f"{type(policy).__name__} needs items with {name}, as a TopicBandit has; the query has none"
            )
    return jnp.concatenate([part.T for _, part in parts if part is not None])


def sample_weights(key: Key, state: Ridge, gamma: Array) -> Array:
    """float[p]: w̃ ~ N(ŵ, γ²·O⁻¹), as ŵ + γ·C⁻ᵀε with O = CCᵀ."""
    root = jnp.linalg.cholesky(ridge.gram(state))
    noise = jax.random.normal(key, state.weights.shape, state.weights.dtype)
    return state.weights + gamma * jax.scipy.linalg.solve_triangular(root.T, noise, lower=False)


def _linear(weights: Array, items: FeatureMap) -> Callable[[Array], Array]:
    """φ(a | S)ᵀw of every item, as a function of the part of each topic that S leaves uncovered [num_covered]."""
    c = items.num_covered
    modular = _dot(weights[c:], items.features[c:])
    return lambda uncovered: modular + _dot(weights[:c] * uncovered, items.features[:c])


def _optimism(state: Ridge, items: FeatureMap, gamma: Array) -> Callable[[Array], Array]:
    """φᵀŵ + γ·sqrt(φᵀO⁻¹φ) of every item, as a function of the part that S leaves uncovered [num_covered].

    With φ = s ⊙ f, where s is 1 in modular coordinates, φᵀO⁻¹φ = Σ_{i ≤ j} (2 − 1{i = j})·O⁻¹_ij·s_i·s_j · f_i·f_j.
    This is the product of a vector with a matrix [pairs, L] that depends only on the items, so that many lanes make one
    matrix product. It replaces f·diag(s)·O⁻¹·diag(s)·f, a product [L, p]·[p, p] in each lane, of twice the work
    (benchmarks/linear.py). Pairs of modular coordinates do not depend on S.
    """
    c, p = items.num_covered, items.features.shape[0]
    first, second = np.triu_indices(p)  # those with a covered coordinate come first
    n = int(np.count_nonzero(first < c))
    pairs = items.features[first] * items.features[second]
    forms = state.inverse[first, second] * np.where(first == second, 1, 2).astype(np.float32)
    mean = _linear(state.weights, items)
    modular = _dot(forms[n:], pairs[n:])

    def score(uncovered: Array) -> Array:
        form = modular
        if n:
            s = jnp.concatenate([uncovered, jnp.ones(p - c)])
            products = jnp.concatenate([s[i] * s[i:] for i in range(c)])  # s_i·s_j of these pairs
            form = form + _dot(forms[:n] * products, pairs[:n])
        return mean(uncovered) + gamma * jnp.sqrt(jnp.maximum(form, 0))

    return score


def _greedy(score: Callable[[Array], Array], items: FeatureMap, words: Array, list_size: int) -> Array:
    """int32[K]: lines 7 to 17 of CascadeHybrid's Algorithm 1; of equal scores, that of the larger word."""
    c, num_items = items.num_covered, items.features.shape[1]
    index = np.uint32(2 ** (num_items - 1).bit_length() - 1)  # the lowest bits of a word hold its item's number
    tagged = (words & ~index) | jnp.arange(num_items, dtype=jnp.uint32)
    constant = None if c else score(jnp.ones(0))

    def place(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        uncovered, free = carry
        scores = jnp.where(free, score(uncovered) if constant is None else constant, -jnp.inf)
        highest = jnp.max(scores)
        equal = scores >= highest - _TIE * jnp.abs(highest)
        chosen = jnp.max(jnp.where(equal, tagged, 0)) & index
        uncovered = uncovered * (1 - items.features[:c, chosen])
        return (uncovered, free & (jnp.arange(num_items, dtype=jnp.uint32) != chosen)), chosen.astype(jnp.int32)

    return jax.lax.scan(place, (jnp.ones(c), jnp.ones(num_items, bool)), length=list_size)[1]


def _dot(vector: Array, matrix: Array | np.ndarray) -> Array:
    return jnp.dot(vector, matrix, precision=jax.lax.Precision.HIGHEST)
