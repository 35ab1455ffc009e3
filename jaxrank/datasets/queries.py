"""Queries with documents, features and relevance labels: what learning to rank learns from."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrank.core.checks import non_negative
from jaxrank.core.pytrees import array, pytree, static
from jaxrank.core.types import Array


@pytree
class QuerySet:
    """Labelled documents of many queries, flat: those of query q are rows starts[q] to starts[q + 1] − 1.

    Nothing is padded here, so that a query with a thousand documents costs a thousand rows and no more. Where code
    needs a fixed shape, ``documents`` gives a query's rows, padded to ``max_documents``, with a mask.

    Args:
      features: float [documents, d].
      grades: int [documents], 0 is not relevant.
      starts: int [queries + 1], from 0 to the number of documents.
    """

    features: Any = array(ndim=2)
    grades: Any = array(ndim=1, dtype=jnp.int32, check=non_negative)
    starts: Any = array(ndim=1, dtype=jnp.int32, check=non_negative)
    max_documents: int = static(default=None)
    num_grades: int = static(default=None)

    def _validate(self) -> None:
        starts, rows = np.asarray(self.starts), self.features.shape[0]
        if self.features.ndim != 2:
            raise ValueError(f"QuerySet.features must have 2 dimensions; got shape {self.features.shape}")
        if self.grades.shape != (rows,):
            raise ValueError(f"QuerySet.grades must be one for each of {rows} documents; got shape {self.grades.shape}")
        if starts.ndim != 1 or starts.size < 2 or starts[0] != 0 or starts[-1] != rows or (np.diff(starts) < 1).any():
            raise ValueError(f"QuerySet.starts must increase from 0 to {rows}; got {starts!r}")
        object.__setattr__(self, "max_documents", int(np.diff(starts).max()))
        object.__setattr__(self, "num_grades", int(np.asarray(self.grades).max()) + 1)

    @property
    def num_queries(self) -> int:
        return self.starts.shape[0] - 1

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    def take(self, indices: Any) -> "QuerySet":
        """The queries numbered ``indices``; on the host."""
        starts = np.asarray(self.starts)
        rows = [np.arange(starts[q], starts[q + 1]) for q in np.asarray(indices)]
        ends = np.cumsum([len(r) for r in rows])
        every = np.concatenate(rows)
        return QuerySet(self.features[every], self.grades[every], np.concatenate([[0], ends]))

    def documents(self, index: Array) -> tuple[Array, Array]:
        """float[L, d] and bool[L]: the documents of a query, padded with zeros, and a mask; L = ``max_documents``."""
        rows, mask = self.rows(index)
        return jnp.where(mask[:, None], self.features[rows], 0), mask

    def rows(self, index: Array) -> tuple[Array, Array]:
        """int32[L] and bool[L]: the rows of a query's documents, and their mask, False for padding."""
        first, end = self.starts[index], self.starts[index + 1]
        place = jnp.arange(self.max_documents, dtype=jnp.int32)
        return jnp.minimum(first + place, end - 1), place < end - first
