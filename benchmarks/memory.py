"""Peak memory and sums of a long run: 5,000,000 steps × 1,000 lanes by default.

    python benchmarks/memory.py [STEPS [QUERIES SEEDS]]

Prints the peak memory of the process, and how far the regret of the static list is from its exact sum, computed in
float64. Give fewer steps to see that memory does not depend on them.
"""

import resource
import sys

import numpy as np

import jaxrank as jr


def main(steps: int = 5_000_000, queries: int = 100, seeds: int = 10) -> None:
    model = jr.datasets.synthetic("cm", queries)
    environment = jr.ClickBandit(model, list_size=10, top=5)
    result = jr.simulate(jr.BubbleRank(), environment, steps, num_seeds=seeds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = result.attrs["lane_steps_per_second"] / 1e6
    regret = float(result["regret"][..., -1].mean())
    print(f"BubbleRank, {queries * seeds:,} lanes × {steps:,} steps: peak memory {peak:,.0f} MB")
    print(f"{result.attrs['wall_time_seconds']:,.0f} s, {rate:.2f} M lane-steps/s, mean regret {regret:,.2f}")

    static = jr.simulate(jr.StaticRanking(), environment, steps, num_records=1)["regret"][:, 0, 0].values
    attraction = np.asarray(model.attraction, np.float64)
    best = -np.sort(-attraction, axis=1)
    exact = steps * (np.prod(1 - attraction[:, :5], axis=1) - np.prod(1 - best[:, :5], axis=1))
    worst = np.max(np.abs(static - exact) / np.maximum(exact, 1))
    print(f"StaticRanking: largest relative difference of a lane's regret to float64 {worst:.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
