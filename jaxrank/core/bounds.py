"""The papers' upper bounds on regret, to draw beside a curve. They are far above it: their constants are worst-case.

>>> import numpy as np
>>> import jaxrank as jr
>>> steps = np.array([1_000, 100_000])
>>> jr.bounds.batchrank_bound(np.array([0.5, 0.3, 0.1]), 2, steps).round()
array([318553., 530759.])
"""

from typing import Any

import numpy as np

from jaxrank.core.checks import (
    Check,
    finite,
    integer,
    non_negative,
    open_probability,
    positive,
    probability,
    real,
    rectangular,
)


def bubblerank_bound(
    attraction: np.ndarray, examination: np.ndarray, base_inversions: np.ndarray, steps: np.ndarray, horizon: int
) -> np.ndarray:
    """BubbleRank's Theorem 1 with δ = n⁻⁴, for the horizon n, as a function of the step.

    180·K·(χ_max/χ_min)·(K − 1 + 2|V₀|)/Δ_min·log(1/δ) + δ^½·K³·t².

    Args:
      attraction: α [K] of one query; Δ_min is the smallest difference between two different values.
      examination: χ(R*, k) [K], the examination probabilities of the optimal list.
      base_inversions: |V₀|, one number.
      steps: t [n], at most the horizon.
      horizon: n.
    """
    attraction = _numbers("attraction", attraction, probability, ndim=1)
    examination = _numbers("examination", examination, probability, ndim=1)
    inversions = _numbers("base_inversions", base_inversions, non_negative)
    if inversions.ndim:
        raise ValueError(f"base_inversions must be one number; got an array of shape {inversions.shape}")
    horizon, K = integer("horizon", horizon), len(attraction)
    steps = _numbers("steps", steps, positive)
    if np.any(steps > horizon):
        raise ValueError(f"steps must be at most the horizon, {horizon}; got {np.max(steps):g}")
    if len(examination) != K:
        raise ValueError(f"examination must have the length of attraction, {K}; got {len(examination)}")
    gap, lowest = _smallest_gap(attraction), np.min(examination)
    ratio = np.max(examination) / lowest if lowest > 0 else np.inf
    leading = 180 * K * ratio * (K - 1 + 2 * inversions) / gap * 4 * np.log(horizon)
    return leading + horizon**-2.0 * K**3 * steps**2


def batchrank_bound(attraction: np.ndarray, list_size: int, steps: np.ndarray) -> np.ndarray:
    """BatchRank's Theorem 1: 192·K³·L/((1 − α_max)·Δ_min)·log T + 4·K·L·(3e + K), with Δ_min over the K + 1 best items.

    Args:
      attraction: α [L] of one query.
      list_size: K.
      steps: T [n], each at least 5.
    """
    attraction = _numbers("attraction", attraction, probability, ndim=1)
    L = len(attraction)
    K = integer("list_size", list_size, 1, L, " items")
    best = np.sort(attraction)[::-1][: K + 1]
    room = (1 - best[0]) * _smallest_gap(best)
    leading = 192 * K**3 * L / room if room > 0 else np.inf
    return leading * np.log(_numbers("steps", steps, _at_least_5)) + 4 * K * L * (3 * np.e + K)


def cascadehybrid_eta(highest_attraction: np.ndarray, list_size: int) -> np.ndarray:
    """η = (1 − 1/e)·max{1/K, 1 − (K − 1)/2·α_max} (CascadeHybrid, Sec. 4; Sec. 3.2 misprints 1/e as 1/K).

    The greedy benchmark of a cascade with topics has at least η times the highest reward.

    Args:
      highest_attraction: α_max, the attraction of the best item at the top; an array of any shape.
      list_size: K.
    """
    K, highest = integer("list_size", list_size), _numbers("highest_attraction", highest_attraction, probability)
    return (1 - 1 / np.e) * np.maximum(1 / K, 1 - (K - 1) / 2 * highest)


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
    p, K, n = integer("num_features", num_features), integer("list_size", list_size), _numbers("steps", steps, positive)
    log = np.log(1 + n * K / p)
    gamma = np.sqrt(p * log + 2 * np.log(n)) + real("norm", norm, probability)
    return 2 * gamma * np.sqrt(2 * n * K * p * log) + 1


def pairrank_bound(
    num_features: int,
    num_documents: int,
    steps: np.ndarray,
    *,
    gap: float,
    regularization: float,
    norm_bound: float = 1.0,
    norm: float | None = None,
    eigenvalue: float = 1.0,
    all_examined: float = 1.0,
    beta: float = 0.25,
    list_size: int = 10,
) -> np.ndarray:
    """PairRank's Theorem 1 with δ₁ = δ₂ = 1/T, for the number of mis-ordered pairs in T steps.

    R' + (1 − δ₁)(1 − δ₂)·p*⁻²·(2a·d·L·log(1 + o_max·T·u²/(2dλ)) + a·w)², with t', a and b of Lemma 3 and R = 1/2. The
    theorem's R' subtracts (1 − δ₂)δ₁L²; it is added here, as in the proof (eq. 6). Of Lemma 2's universal constants,
    which no number is given for, C₁ = C₂ = 1 is taken. λ_min(M_s) is at least λ_min(Σ)·s − (√d + √log T)·√s (App. C.1),
    and w the integral of its inverse; eq. 5's constant would make w grow with T. With Lemma 3's a, as the theorem says,
    the bound grows as log²T; the theorem's log⁴T comes from the a of its proof, which has log(1/δ₁). In the first t'
    steps every pair may be wrong; t' is far beyond any run for the features of LETOR data.

    Args:
      num_features: d.
      num_documents: L_max.
      steps: T [n].
      gap: Δ_min, the smallest |σ(x_ijᵀθ*) − ½|.
      regularization: λ.
      norm_bound: Q.
      norm: u, the largest ‖x_ij‖; √d for features in [0, 1] by default.
      eigenvalue: λ_min(Σ), of the second moments of x_ij.
      all_examined: p*, the smallest probability that all documents are examined.
      beta: β.
      list_size: o_max, the largest number of examined documents.
    """
    d, L = integer("num_features", num_features), integer("num_documents", num_documents, 2)
    T, list_size = _numbers("steps", steps, positive), integer("list_size", list_size)
    for name, value in (("gap", gap), ("beta", beta)):
        real(name, value, open_probability)
    for name, value in (("regularization", regularization), ("norm_bound", norm_bound), ("eigenvalue", eigenvalue)):
        real(name, value, positive)
    real("all_examined", all_examined, _up_to_1)
    u = np.sqrt(d) if norm is None else real("norm", norm, positive)
    flattest = 1 / (2 + 2 * np.cosh(norm_bound * u))  # c_μ; k_μ is ¼
    a = 4 / 16 * u**2 / (beta * flattest * gap) ** 2
    b = 1 / 4 + 4 * np.sqrt(regularization) * norm_bound / 2
    log_T = np.log(np.maximum(T, 2))
    spread = a * b * d * np.sqrt(list_size * u**2 / (d * regularization))
    late = ((np.sqrt(d) + np.sqrt(log_T) + spread) / eigenvalue) ** 2
    late += (4 * a * b * log_T + 8 * a * regularization * norm_bound**2 - regularization) / eigenvalue
    root, slow = np.sqrt(late), np.sqrt(d) + np.sqrt(log_T)
    w = 1 / (eigenvalue * late - slow * root)  # the first step, and the integral over all others
    w += 2 / eigenvalue * np.log((eigenvalue * np.sqrt(np.maximum(T, late)) - slow) / (eigenvalue * root - slow))
    w *= (L**2 - 2 * L) * u**2
    late = np.minimum(late, T)  # t'
    delta = 1 / np.maximum(T, 2)
    first = late * L**2 + (T - late) * L**2 * (delta + (1 - delta) * delta)
    rest = 2 * a * d * L * np.log1p(list_size * T * u**2 / (2 * d * regularization)) + a * w
    return first + np.where(late < T, (1 - delta) ** 2 * (rest / all_examined) ** 2, 0)


def _smallest_gap(attraction: np.ndarray) -> float:
    values = np.unique(attraction)
    return float(np.diff(values).min()) if len(values) > 1 else np.inf


def _numbers(name: str, values: Any, check: Check = finite, ndim: int | None = None) -> np.ndarray:
    """``values`` as float64 that ``check`` allows, of ``ndim`` axes if that is given."""
    found = rectangular(name, values)
    if found.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be numbers; got {values!r:.60}")
    if ndim is not None and (found.ndim != ndim or not found.size):
        raise ValueError(f"{name} must be a list of numbers; got an array of shape {found.shape}")
    allowed, rule = check(found)
    if not np.all(allowed):
        raise ValueError(f"{name} must be {rule}; got {found[~np.asarray(allowed)].flat[0]}")
    return found.astype(np.float64)


def _at_least_5(values: np.ndarray) -> tuple[np.ndarray, str]:
    return np.isfinite(values) & (values >= 5), "at least 5"


def _up_to_1(values: np.ndarray) -> tuple[np.ndarray, str]:
    return (values > 0) & (values <= 1), "in (0, 1]"
