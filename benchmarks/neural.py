"""Speed and memory of a neural ranker on a LETOR dataset, all seeds side by side.

    python benchmarks/neural.py FOLDER [POLICY [STEPS [SEEDS]]]

POLICY is a name as in ``jr.make``, p2neurrank unless given. Prints lane-steps per second up to steps 200 and 1,000 and
after, and the peak memory of the process at these steps, which stays the same once the compiled loop runs.
"""

import itertools
import resource
import sys

import numpy as np
from pairwise import simulated

import jaxrank as jr


def main(folder: str, name: str = "p2neurrank", steps: int = 2_000, seeds: int = 20) -> None:
    queries = jr.datasets.letor(folder).train
    environment = jr.QueryStream(queries, jr.click_models.graded_user("perfect"))
    sizes = np.diff(np.asarray(queries.starts))
    print(f"{len(sizes)} queries of {sizes.mean():.0f} documents ({sizes.max()} at most), d = {queries.num_features}")
    marks, peaks = [mark for mark in (200, 1_000) if mark < steps] + [steps], {}

    def peak(step: int) -> None:
        peaks[step] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    rates = simulated(jr.make(name), environment, marks, seeds, peak)
    for (first, last), rate in zip(itertools.pairwise([0, *marks]), rates, strict=True):
        print(
            f"{name}, steps {first + 1:,} to {last:,}: {rate:,.0f} lane-steps/s, {seeds} seeds; {peaks[last]:,.0f} MB"
        )


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
