"""The papers' upper bounds on regret, to draw beside a curve. They are far above it: constants are worst-case."""

import numpy as np


def bubblerank_bound(
    attraction: np.ndarray, examination: np.ndarray, base_inversions: np.ndarray, steps: np.ndarray, horizon: int
) -> np.ndarray:
    """BubbleRank's Theorem 1 with δ = n⁻⁴, for the horizon n, as a function of the step.

    180·K·(χ_max/χ_min)·(K − 1 + 2|V₀|)/Δ_min·log(1/δ) + δ^½·K³·t².

    Args:
      attraction: α [K] of one query; the smallest gap Δ_min is that of different values.
      examination: χ(R*, k) [K], the examination probabilities of the optimal list.
      base_inversions: |V₀|.
      steps: t [n].
      horizon: n.
    """
    K = len(attraction)
    gap = _smallest_gap(attraction)
    ratio = np.max(examination) / np.min(examination)
    leading = 180 * K * ratio * (K - 1 + 2 * base_inversions) / gap * 4 * np.log(horizon)
    return leading + horizon**-2.0 * K**3 * np.asarray(steps, np.float64) ** 2


def batchrank_bound(attraction: np.ndarray, list_size: int, steps: np.ndarray) -> np.ndarray:
    """BatchRank's Theorem 1: 192·K³·L/((1 − α_max)·Δ_min)·log T + 4·K·L·(3e + K), Δ_min of the K + 1 best items.

    Args:
      attraction: α [L] of one query.
      list_size: K.
      steps: T [n], each at least 5.
    """
    K, L = list_size, len(attraction)
    best = np.sort(np.asarray(attraction, np.float64))[::-1][: K + 1]
    leading = 192 * K**3 * L / ((1 - best[0]) * _smallest_gap(best))
    return leading * np.log(np.asarray(steps, np.float64)) + 4 * K * L * (3 * np.e + K)


def _smallest_gap(attraction: np.ndarray) -> float:
    values = np.unique(np.asarray(attraction, np.float64))
    return float(np.diff(values).min()) if len(values) > 1 else np.inf
