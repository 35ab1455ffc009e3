"""The changing click bandit: the same items at every step, whose attraction changes with time.

Policies are not told. Regret is measured against the best list of the moment, and against the best fixed list.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core.checks import integer, positive, probability
from jaxrank.core.pytrees import array, derived, over_instances, pytree, static
from jaxrank.core.types import Array, Key, Query, require, reward_gap
from jaxrank.environments.click_bandit import ClickBandit


@pytree
class Changing:
    """A click bandit that goes through several worlds: in each, the same items have another attraction.

    ``change`` makes one with random worlds. Here the worlds and the steps at which they begin are given. After the
    last world the first one follows again, so that two worlds may be two intents of the users, who switch between them.

    Metrics are those of ``ClickBandit`` in the world of the moment, and ``fixed_regret``: the reward of the best fixed
    list minus that of the list, which is negative in a step in which the list is better. The best fixed list is that of
    the mean attraction of all worlds. It is the best one exactly in the position-based model, in which rewards are
    linear in the attraction, if the worlds last equally long, and an approximation elsewhere.

    Args:
      environment: a ``ClickBandit``; the attraction, and the examination, of its click model are replaced.
      attraction: float[worlds, L], or [queries, worlds, L]: of each world.
      examination: float[worlds, K], or [queries, worlds, K]: of each world, if its click model has χ by position. That
        of the environment by default.
      every: the number of steps that a world lasts.
      at: the steps, in increasing order, from which on the next world is the current one; instead of ``every``.
      drift: move from each world to the next steadily, linearly in time, instead of changing at once. Needs ``every``.
    """

    instance_dim: ClassVar[str] = "query"

    environment: Any
    attraction: Any = array(ndim=2, check=probability)
    examination: Any = array(ndim=2, check=probability, default=None)
    every: Any = array(ndim=0, dtype=jnp.int32, check=positive, default=None)
    at: Any = array(ndim=1, dtype=jnp.int32, check=positive, default=None)
    drift: bool = static(default=False)
    fixed_ranking: Array = derived(ndim=1)  # int32[K], the best fixed list

    @property
    def num_items(self) -> int:
        return self.environment.num_items

    @property
    def list_size(self) -> int:
        return self.environment.list_size

    def _validate(self) -> None:
        env = self.environment
        _require_bandit("Changing.environment", env)
        if self.attraction.shape[-1] != env.num_items:
            raise ValueError(
                f"Changing.attraction must be that of {env.num_items} items in each world; "
                f"got shape {self.attraction.shape}"
            )
        if (self.every is None) == (self.at is None):
            raise ValueError("Changing needs either every, the steps of a world, or at, the steps of the changes")
        if self.drift and self.every is None:
            raise ValueError("Changing.drift needs every, the number of steps from one world to the next; got at")
        if self.at is not None and (jnp.diff(self.at, axis=-1) <= 0).any():
            raise ValueError(f"Changing.at must be increasing steps; got {self.at.tolist()!r:.60}")
        if self.examination is not None:
            known = getattr(env.click_model, "examination", None)
            wanted = None if known is None else (self.attraction.shape[-2], known.shape[-1])
            if self.examination.shape[-2:] != wanted:
                raise ValueError(
                    f"Changing.examination must be [worlds, positions] = {wanted} of the click model; "
                    f"got shape {self.examination.shape}"
                )

    def _derive(self) -> dict[str, Array]:
        def best(env: "Changing") -> Array:
            examination = None if env.examination is None else jnp.mean(env.examination, axis=0)
            mean = env._world(jnp.mean(env.attraction, axis=0), examination)
            return mean.click_model.optimal_ranking(env.list_size, env.environment.top)

        return {"fixed_ranking": over_instances(best, self)}

    def query(self, key: Key, step: Array) -> Query:
        return self._now(step).query(key, step)

    def clicks(self, key: Key, query: Query, ranking: Array) -> Array:
        return self._now(query.step).clicks(key, query, ranking)

    def metrics(self, query: Query, ranking: Array) -> dict[str, Array]:
        now = self._now(query.step)
        fixed = reward_gap(now.click_model, self.fixed_ranking, ranking, now.top)
        return {**now.metrics(query, ranking), "fixed_regret": fixed}

    def _now(self, step: Array) -> ClickBandit:
        """The click bandit of this step."""
        progress, chi = self._progress(step), self.examination
        return self._world(_between(self.attraction, *progress), None if chi is None else _between(chi, *progress))

    def _progress(self, step: Array) -> tuple[Array, Array]:
        """int32[] and float[]: the number of the world, and the share of the next one in it."""
        worlds, before = self.attraction.shape[-2], jnp.maximum(step - 1, 0)
        if self.at is not None:
            return jnp.sum(self.at <= step, dtype=jnp.int32) % worlds, jnp.zeros(())
        passed = (before % self.every) / self.every if self.drift else jnp.zeros(())
        return before // self.every % worlds, passed

    def _world(self, attraction: Array, examination: Array | None) -> ClickBandit:
        """The click bandit with this attraction and examination."""
        model = _with(self.environment.click_model, attraction=attraction)
        if examination is not None:
            model = _with(model, examination=examination)
        world = _with(self.environment, click_model=model)
        return _with(world, **world._derive())


def change(
    environment: ClickBandit,
    *,
    every: int | None = None,
    random: int | None = None,
    at: Any = None,
    drift: int | None = None,
    worlds: int = 11,
    keep: int = 0,
    seed: int = 0,
) -> Changing:
    """A click bandit whose items exchange their attractions as time passes, at random but for a ``seed``.

    World 0 is ``environment``. In each other world the items have its attractions in a random order, which differs from
    query to query. After the last world comes the first one again. Just one of these says when:

    Args:
      environment: a ``ClickBandit``.
      every: a change after each such number of steps.
      random: changes at random steps, after this number of steps on average (100 changes, then no more).
      at: a list of steps from which on the next world is the current one.
      drift: no abrupt changes: in this number of steps the attractions move steadily from those of one world to those
        of the next.
      worlds: the number of worlds.
      keep: the number of items, the most attractive ones of world 0, whose attraction stays the same.
      seed: of the worlds and the random steps.
    """
    given = {"every": every, "random": random, "at": at, "drift": drift}
    kinds = [name for name, value in given.items() if value is not None]
    if len(kinds) != 1:
        raise ValueError(f"change needs one of {', '.join(given)}; got {' and '.join(kinds) or 'none'}")
    _require_bandit("environment", environment)
    worlds = integer("worlds", worlds, 2)
    attraction = np.asarray(environment.click_model.attraction)
    keep = integer("keep", keep, 0, attraction.shape[-1] - 1, " items")
    generator = np.random.default_rng(integer("seed", seed, 0))
    rows = np.atleast_2d(attraction)
    order = np.argsort(-rows, axis=1, kind="stable")[:, keep:]  # of each query, the items that change
    shuffled = np.repeat(rows[:, None], worlds, axis=1)
    for query, items in enumerate(order):
        for world in range(1, worlds):
            shuffled[query, world, items] = rows[query, generator.permutation(items)]
    of_worlds = shuffled.reshape(*attraction.shape[:-1], worlds, attraction.shape[-1])
    when: dict[str, Any] = {"every": every, "at": at}
    if drift is not None:
        when = {"every": integer("drift", drift), "drift": True}
    if random is not None:
        when = {"at": 1 + np.cumsum(generator.geometric(1 / integer("random", random), 100))}
    return Changing(environment, of_worlds, **when)


def _require_bandit(name: str, environment: Any) -> None:
    if not isinstance(environment, ClickBandit):
        require("environment", environment, name)
        outside = ": write jr.Corrupted(jr.change(…), …)" if hasattr(environment, "environment") else ""
        raise ValueError(f"{name} must be a ClickBandit; got a {type(environment).__name__}{outside}")


def _between(values: Array, number: Array, weight: Array) -> Array:
    """The row of this number of ``values`` [worlds, n], moved towards the next one by a ``weight`` in [0, 1)."""
    worlds = values.shape[0]
    row = jax.lax.dynamic_index_in_dim(values, number, keepdims=False)
    following = jax.lax.dynamic_index_in_dim(values, (number + 1) % worlds, keepdims=False)
    return row + weight * (following - row)


def _with(tree: Any, **fields: Any) -> Any:
    """The pytree with other values of these fields, unchecked: they were checked when it was made."""
    changed = object.__new__(type(tree))
    changed.__dict__.update(tree.__dict__ | fields)
    return changed
