"""The papers' upper bounds on regret, to draw beside a curve. They are far above it: their constants are worst-case."""

import numpy as np


def bubblerank_bound(
    attraction: np.ndarray, examination: np.ndarray, base_inversions: np.ndarray, steps: np.ndarray, horizon: int
) -> np.ndarray:
    """BubbleRank's Theorem 1 with δ = n⁻⁴, for the horizon n, as a function of the step.

    180·K·(χ_max/χ_min)·(K − 1 + 2|V₀|)/Δ_min·log(1/δ) + δ^½·K³·t².

    Args:
      attraction: α [K] of one query; Δ_min is the smallest difference between two different values.
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
    """BatchRank's Theorem 1: 192·K³·L/((1 − α_max)·Δ_min)·log T + 4·K·L·(3e + K), with Δ_min over the K + 1 best items.

    Args:
      attraction: α [L] of one query.
      list_size: K.
      steps: T [n], each at least 5.
    """
    K, L = list_size, len(attraction)
    best = np.sort(np.asarray(attraction, np.float64))[::-1][: K + 1]
    leading = 192 * K**3 * L / ((1 - best[0]) * _smallest_gap(best))
    return leading * np.log(np.asarray(steps, np.float64)) + 4 * K * L * (3 * np.e + K)


def cascadehybrid_eta(highest_attraction: np.ndarray, list_size: int) -> np.ndarray:
    """η = (1 − 1/e)·max{1/K, 1 − (K − 1)/2·α_max} (CascadeHybrid, Sec. 4; Sec. 3.2 misprints 1/e as 1/K).

    The greedy benchmark of a cascade with topics has at least η times the highest reward.

    Args:
      highest_attraction: α_max, the attraction of the best item at the top; an array of any shape.
      list_size: K.
    """
    K = list_size
    return (1 - 1 / np.e) * np.maximum(1 / K, 1 - (K - 1) / 2 * np.asarray(highest_attraction, np.float64))


def cascadehybrid_bound(num_features: int, list_size: int, steps: np.ndarray, norm: float = 1.0) -> np.ndarray:
    """CascadeHybrid's Theorem 1: 2γ·sqrt(2nK(m + d)·log(1 + nK/(m + d))) + 1, with the γ of eq. 16 for the same n.

    It bounds regret against η times the best reward. Eq. 16 prints the norm of w* under the root. Here it is added to
    the root, as in the lemma that the proof uses, which gives the larger γ.

    Args:
      num_features: m + d.
      list_size: K.
      steps: n, the number of steps; an array of any shape.
      norm: ‖w*‖₂, at most 1.
    """
    p, n = num_features, np.asarray(steps, np.float64)
    log = np.log(1 + n * list_size / p)
    gamma = np.sqrt(p * log + 2 * np.log(n)) + norm
    return 2 * gamma * np.sqrt(2 * n * list_size * p * log) + 1


def _smallest_gap(attraction: np.ndarray) -> float:
    values = np.unique(np.asarray(attraction, np.float64))
    return float(np.diff(values).min()) if len(values) > 1 else np.inf
