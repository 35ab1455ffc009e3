"""A sweep planned from the tool's own estimate, and scaled-down runs that show whether the estimate is right.

    python benchmarks/plan.py [LANES STEPS SMALL_STEPS]

Prints the estimate for 100,000 lanes × 1,000,000 steps of BubbleRank. Then it makes two smaller runs, one with all the
lanes and few steps, one with few lanes and many steps, each in a process of its own, and prints estimated and measured
time and memory, and their ratio. Memory is what the run adds to a process that has run one lane before.
"""

import subprocess
import sys
import time

import jaxrank as jr
from jaxrank.bench.measurement import _peak_memory, _reset_peak_memory
from jaxrank.engine.memory import gigabytes


def world(lanes: int) -> tuple[jr.ClickBandit, int]:
    """100 queries, the rest seeds."""
    return jr.ClickBandit(jr.datasets.synthetic("cm", 100), top=5), lanes // 100


def measure(lanes: int, steps: int) -> None:
    environment, seeds = world(lanes)
    jr.simulate(jr.BubbleRank(), environment, steps, instances=[0], progress=False)  # takes what any run takes
    _reset_peak_memory()
    before = _peak_memory()
    started = time.perf_counter()
    jr.simulate(jr.BubbleRank(), environment, steps, num_seeds=seeds, progress=False)
    print(time.perf_counter() - started, (_peak_memory() - before) * 2**20)


def plan(lanes: int, steps: int) -> jr.Estimate:
    environment, seeds = world(lanes)
    return jr.estimate(jr.BubbleRank(), environment, steps, num_seeds=seeds)


def main(lanes: int = 100_000, steps: int = 1_000_000, small_steps: int = 2_000) -> None:
    print("planned:", plan(lanes, steps), flush=True)
    for few in ((lanes, small_steps), (max(100, lanes // 100), 50 * small_steps)):
        estimated = plan(*few)
        print("estimate:", estimated, flush=True)
        command = [sys.executable, __file__, "measure", *map(str, few)]
        seconds, size = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
        print(
            f"measured: {seconds:.1f} s and {gigabytes(size)}; estimate / measured = {estimated.seconds / seconds:.2f} "
            f"and {estimated.total_bytes / size:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
