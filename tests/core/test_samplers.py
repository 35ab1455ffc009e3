"""Samplers against the distributions that they sample."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from reference.position_based import posterior_cdf

from jaxrank.core import random
from jaxrank.core.samplers import beta, position_based_posterior


def test_beta_samples_follow_the_distribution():
    """Kolmogorov–Smirnov at p = 1e-4, of 20,000 lanes; neighbouring items' correlations are 0 to 5 standard errors."""
    a = jnp.array([1, 1, 1.5, 6, 31, 60_001, 4, 1_300_001], jnp.float32)
    b = jnp.array([1, 6, 2.5, 1, 371, 40_001, 1_999_998, 700_001], jnp.float32)
    keys = jax.random.split(random.root_key(0), 20_000)
    samples = np.asarray(jax.jit(jax.vmap(beta, in_axes=(0, None, None)))(keys, a, b), np.float64)
    for e in range(len(a)):
        exact = scipy.stats.beta(float(a[e]), float(b[e]))
        assert scipy.stats.kstest(samples[:, e], exact.cdf).pvalue > 1e-4, (a[e], b[e])
    correlation = np.corrcoef(samples.T)[np.arange(len(a) - 1), np.arange(1, len(a))]
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


CASES = {  # N by position, clicks by position, χ
    "nothing seen": ([0, 0], [0, 0], [1, 0.5]),
    "no examination": ([9, 9], [0, 0], [0, 0]),
    "no clicks": ([40, 10], [0, 0], [1, 0.3]),
    "always clicked": ([40, 0], [40, 0], [1, 0.3]),
    "more clicks than expected": ([0, 50], [0, 35], [1, 0.5]),
    "one click": ([1, 0, 0], [1, 0, 0], [1, 0.5, 0.2]),
    "hardly examined": ([0, 1_000], [0, 3], [1, 0.01]),
    "much": ([3_000, 2_000, 1_000], [310, 95, 30], [0.9, 0.5, 0.25]),
    "millions": ([4_000_000, 900_000], [1_200_000, 120_000], [1, 0.4]),
    "millions of skips": ([5_000_000, 5_000_000], [40, 11], [1, 0.3]),
}


@pytest.mark.parametrize("case", CASES)
def test_position_based_samples_follow_the_posterior(case):
    """Kolmogorov–Smirnov at p = 1e-4, of 20,000 samples; and each within 1e-3 of its uniform in the CDF."""
    N, S, chi = (np.asarray(values) for values in CASES[case])
    samples = 20_000
    uniforms = jax.random.uniform(jax.random.key(0), (samples,))
    clicks = jnp.full(samples, S.sum(), jnp.int32)
    skips = jnp.tile(jnp.asarray(N - S, jnp.int32)[:, None], (1, samples))
    theta = position_based_posterior(uniforms, clicks, skips, jnp.asarray(chi, jnp.float32))
    exact_chi = np.float64(np.float32(chi)).tolist()  # as float32 has it
    cdf = posterior_cdf(np.asarray(theta, np.float64), S.sum(), N - S, exact_chi, cells=200_000)
    assert scipy.stats.kstest(cdf, "uniform").pvalue > 1e-4
    np.testing.assert_allclose(cdf, uniforms, rtol=0, atol=1e-3)
