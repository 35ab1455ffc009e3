"""Training a ranker by gradient descent: any scoring function, any optax optimiser, any loss of a query's scores."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrank.core.checks import integer
from jaxrank.core.types import Array, Key
from jaxrank.learning import losses
from jaxrank.learning.rankers import Params, Ranker, linear

if TYPE_CHECKING:
    from jaxrank.datasets.queries import QuerySet


def train(
    queries: "QuerySet",
    loss: losses.Loss = losses.softmax,
    ranker: Ranker = linear,
    *,
    labels: Any = None,
    optimizer: Any = None,
    num_epochs: int = 100,
    learning_rate: float = 0.01,
    batch_size: int = 8,
    regularization: float = 0.0,
    num_seeds: int | None = None,
    seed: int = 0,
) -> Params:
    """Trains a ranker to a low mean loss over queries, and returns its parameters.

    Every epoch shuffles the queries into mini-batches; the last one is filled up from the beginning of the epoch. One
    compiled scan runs all training steps, and nothing per step is kept. Calls that differ only in their data share a
    compilation, provided that they pass the same objects as loss and optimiser.

    Args:
      queries: a ``QuerySet``.
      loss: one of ``jr.losses``, or any function of the scores, labels, mask and a key of one query.
      ranker: the function that scores documents, any ``Ranker(init, apply)``.
      labels: [documents], instead of the grades of ``queries``; or [seeds, documents], different ones for each seed.
      optimizer: an optax ``GradientTransformation``; by default Adam with steps that shrink to 0 as a cosine.
      num_epochs: the number of times that every query is seen.
      learning_rate: of the default optimiser.
      batch_size: the number of queries in a mini-batch.
      regularization: λ of λ/2·‖θ‖², added to the mean loss.
      num_seeds: the number of rankers to train at once, each with its own seed; the result then has a leading axis.
      seed: of initial parameters and mini-batches; with ``num_seeds``, that of the first ranker.

    Example:
      >>> import jaxrank as jr
      >>> data = jr.datasets.synthetic_letor(30)
      >>> clicks = jr.losses.expected_clicks(jr.click_models.graded_user("navigational"), temperature=3.0)
      >>> params = jr.train(data.train, clicks, num_epochs=5)
    """
    num_epochs, batch_size = integer("num_epochs", num_epochs), integer("batch_size", batch_size)
    seeds = 1 if num_seeds is None else integer("num_seeds", num_seeds)
    labels = jnp.asarray(queries.grades if labels is None else labels)
    shape = (queries.features.shape[0],)
    if labels.shape not in (shape, (seeds, *shape)):
        raise ValueError(f"labels must be one for each of {shape[0]} documents; got shape {labels.shape}")
    keys = jax.vmap(jax.random.key)(seed + jnp.arange(seeds))
    settings = _Settings(loss, ranker, optimizer, num_epochs, learning_rate, batch_size, regularization)
    params = _train_seeds(keys, queries, labels, settings)
    return params if num_seeds is not None else jax.tree.map(lambda leaf: leaf[0], params)


class _Settings(NamedTuple):
    """What a compiled training depends on, besides shapes."""

    loss: losses.Loss
    ranker: Ranker
    optimizer: Any
    num_epochs: int
    learning_rate: float
    batch_size: int
    regularization: float


@partial(jax.jit, static_argnames="settings")
def _train_seeds(keys: Key, queries: "QuerySet", labels: Array, settings: _Settings) -> Params:
    run = partial(_train_one, settings=settings)
    return jax.vmap(run, in_axes=(0, None, 0 if labels.ndim == 2 else None))(keys, queries, labels)


def _train_one(key: Key, queries: "QuerySet", labels: Array, settings: _Settings) -> Params:
    loss, ranker, optimizer, num_epochs, learning_rate, batch_size, regularization = settings
    num_batches = -(-queries.num_queries // batch_size)
    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_epochs * num_batches))

    def query_loss(params: Params, index: Array, key: Key) -> Array:
        features, where = queries.documents(index)
        rows, _ = queries.rows(index)
        return loss(ranker.apply(params, features), labels[rows], where, key)

    def batch_loss(params: Params, batch: Array, key: Key) -> Array:
        each = jax.vmap(query_loss, in_axes=(None, 0, 0))(params, batch, jax.random.split(key, batch_size))
        square = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
        return jnp.mean(each) + regularization / 2 * square

    def step(carry: Any, at: tuple[Array, Key]) -> tuple[Any, None]:
        params, state = carry
        updates, state = optimizer.update(jax.grad(batch_loss)(params, *at), state, params)
        return (optax.apply_updates(params, updates), state), None

    def epoch(carry: Any, key: Key) -> tuple[Any, None]:
        order_key, step_key = jax.random.split(key)
        order = jax.random.permutation(order_key, queries.num_queries)
        batches = jnp.resize(order, (num_batches, batch_size))
        return jax.lax.scan(step, carry, (batches, jax.random.split(step_key, num_batches)))[0], None

    init_key, epoch_key = jax.random.split(key)
    params = ranker.init(init_key, queries.num_features)
    carry = (params, optimizer.init(params))
    return jax.lax.scan(epoch, carry, jax.random.split(epoch_key, num_epochs))[0][0]


def offline_ranknet(queries: "QuerySet", ranker: Ranker = linear, **options: Any) -> Params:
    """The upper bound of online learning to rank: RankNet trained on the labels, λ = 1e-3. Options as in ``train``."""
    return train(queries, losses.ranknet, ranker, **{"regularization": 1e-3, **options})
