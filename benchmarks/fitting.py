"""Speed of fitting click models by EM against a plain Python EM on the same sessions, in one run.

    python benchmarks/fitting.py [SESSIONS …]

Sessions are generated: 1,000 queries of 20 items, lists of 10 by a production ranker that varies them, clicks of the
position-based model. Both sides make 50 passes over them; the plain loop, which is the reference of the tests, makes
two and is taken 25 times. jaxrank's time is that of the whole call, from arrays to parameters: first with compilation,
then again. Prints sessions/s of 50 passes, the ratio, and for jaxrank also the models that walk down the list.
"""

import runpy
import sys
import time
from pathlib import Path

import numpy as np

import jaxrank as jr

PLAIN = Path(__file__).parents[1] / "tests" / "reference" / "click_model_fits.py"
places_em = runpy.run_path(str(PLAIN))["places_em"]
QUERIES, L, K, PASSES, PLAIN_PASSES = 1_000, 20, 10, 50, 2


def generate(num_sessions, seed=0):
    """queries [sessions], rankings and clicks [sessions, K]."""
    rng = np.random.default_rng(seed)
    model = jr.datasets.synthetic("pbm", QUERIES, L)
    alpha, chi = np.asarray(model.attraction), np.asarray(model.examination)[:K]
    queries = rng.integers(0, QUERIES, num_sessions).astype(np.int32)
    scores = -np.arange(L, dtype=np.float32) + 2 * rng.gumbel(size=(num_sessions, L)).astype(np.float32)
    rankings = np.argsort(-scores, axis=1)[:, :K].astype(np.int32)
    return queries, rankings, rng.random(rankings.shape) < chi * alpha[queries[:, None], rankings]


def seconds(function):
    started = time.perf_counter()
    found = function()
    return time.perf_counter() - started, found


def main(sizes):
    print(f"{QUERIES:,} queries, L = {L}, K = {K}, {PASSES} passes")
    print(f"{'sessions':>10} {'model':>6} {'first call':>11} {'again':>8} {'sessions/s':>12} {'plain':>8} {'ratio':>7}")
    for num_sessions in sizes:
        queries, rankings, clicks = generate(num_sessions)
        documents = (queries[:, None] * L + rankings).tolist()
        pressed = clicks.tolist()
        plain, expected = seconds(lambda: places_em(documents, pressed, QUERIES * L, PLAIN_PASSES))  # noqa: B023
        plain_rate = num_sessions * PLAIN_PASSES / plain / PASSES
        found = jr.click_models.fit("pbm", rankings, clicks, L, queries=queries, num_iterations=PLAIN_PASSES)
        np.testing.assert_allclose(np.asarray(found.attraction).ravel(), expected[0], atol=1e-4)
        for name in ("pbm", "ubm", "dcm", "dbn"):

            def run(name=name):
                options = {"num_iterations": PASSES, "tolerance": -1.0, "progress": False}
                return jr.click_models.fit(name, rankings, clicks, L, queries=queries, **options)  # noqa: B023

            first, again = seconds(run)[0], seconds(run)[0]
            rate = num_sessions / again
            beside = f"{plain_rate:8,.0f} {rate / plain_rate:7,.0f}" if name == "pbm" else ""
            print(f"{num_sessions:10,} {name:>6} {first:9.2f} s {again:6.2f} s {rate:12,.0f} {beside}", flush=True)


if __name__ == "__main__":
    main([int(float(size)) for size in sys.argv[1:]] or [100_000, 1_000_000])
