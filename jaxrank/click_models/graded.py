"""Graded users: clicks simulated from relevance labels (PairRank, Sec. 4.1 and Table 1; Hofmann et al., IR 2013)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrank.click_models._chain import Chain, ChainModel
from jaxrank.click_models._one_query import click_model
from jaxrank.core.checks import choice, integer, non_negative, one_of, probability
from jaxrank.core.pytrees import array, static
from jaxrank.core.ranking import lookup
from jaxrank.core.types import Array

# {number of grades: {user: (click by grade, stop by grade)}}. 3 grades: Table 1 of PairRank, and the almost random user
# of Schuth et al. (WSDM 2016). 2 grades: the lowest and the highest of these 3. 5 grades: the released online-LTR code.
PRESETS: dict[int, dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    2: {
        "perfect": ((0.0, 1.0), (0.0, 0.0)),
        "navigational": ((0.05, 0.95), (0.2, 0.9)),
        "informational": ((0.4, 0.9), (0.1, 0.5)),
        "almost_random": ((0.4, 0.6), (0.5, 0.5)),
    },
    3: {
        "perfect": ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
        "navigational": ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
        "informational": ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
        "almost_random": ((0.4, 0.5, 0.6), (0.5, 0.5, 0.5)),
    },
    5: {
        "perfect": ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
        "navigational": ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
        "informational": ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
        "almost_random": ((0.4, 0.45, 0.5, 0.55, 0.6), (0.5, 0.5, 0.5, 0.5, 0.5)),
    },
}


@click_model
class GradedUser(ChainModel):
    """The user reads down the list; the document's grade decides the probabilities of a click and of stopping.

    Args:
      click: P(click | grade) of a document that is examined, [grades], or [users, grades].
      stop: P(stop | grade), likewise.
      grades: the grades [L] of the documents that a ranking ranks. ``QueryStream`` fills in those of the query.
      stop_at: when the user may stop: after a "click" only, as the papers say, or after every "view", as the
        released online-LTR code does.
    """

    click: Any = array(ndim=1, check=probability)
    stop: Any = array(ndim=1, check=probability)
    grades: Any = array(ndim=1, dtype=jnp.int32, check=non_negative, default=None)
    stop_at: str = static(default="click", choices=("click", "view"))

    def _validate(self) -> None:
        if self.click.shape != self.stop.shape:
            raise ValueError(
                f"GradedUser.stop must have one probability for each of click's, shape {self.click.shape}; "
                f"got shape {self.stop.shape}"
            )

    @property
    def num_grades(self) -> int:
        return self.click.shape[-1]

    @property
    def attraction(self) -> Array:  # type: ignore[override]
        """float[L]: P(click | examined) of every document."""
        return lookup(self.click, self.grades)

    def _chain(self, ranking: Array) -> Chain:
        grades = lookup(self.grades, ranking)
        going_on = 1 - lookup(self.stop, grades)
        return Chain(
            attraction=lookup(self.click, grades),
            after_skip=jnp.ones_like(going_on) if self.stop_at == "click" else going_on,
            after_click=going_on,
        )


def graded_user(*names: str, num_grades: int = 5, stop_at: str = "click") -> GradedUser:
    """A preset user: "perfect", "navigational", "informational" or "almost_random", with 2, 3 or 5 grades.

    Several names give one ``GradedUser`` with an instance axis: a simulation runs all of them side by side.

    Example:
      >>> import jaxrank as jr
      >>> jr.click_models.graded_user("navigational", num_grades=3)
      GradedUser(click=[0.05, 0.5, 0.95], stop=[0.2, 0.5, 0.9])
    """
    num_grades = integer("num_grades", num_grades)
    if num_grades not in PRESETS:
        raise ValueError(f"num_grades must be {one_of(PRESETS)}; got {num_grades!r}")
    presets = PRESETS[num_grades]
    for name in names or ("",):
        choice("a graded user", name, presets)
    click, stop = (np.array([presets[name][i] for name in names]) for i in (0, 1))
    return (
        GradedUser(click[0], stop[0], stop_at=stop_at) if len(names) == 1 else GradedUser(click, stop, stop_at=stop_at)
    )
