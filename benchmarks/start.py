"""How long a process takes from its start to the end of its first 1,000 steps, without and with cached compilations.

    python benchmarks/start.py [POLICY …]

Every policy runs in three processes of its own: one that compiles, and two that find its functions in JAX's
persistent compilation cache, as a second ``jaxrank`` command does. 1,000 lanes, CM, K = L = 10.
"""

import os
import subprocess
import sys
import tempfile
import time

RUN = """
import sys, jaxrank as jr
environment = jr.ClickBandit(jr.datasets.synthetic("cm", 1_000), list_size=10, top=5)
jr.simulate(jr.make(sys.argv[1]), environment, 1_000, num_records=1)
"""


def main(policies: list[str]) -> None:
    for policy in policies:
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
            seconds = []
            for _ in range(3):
                started = time.perf_counter()
                subprocess.run([sys.executable, "-c", RUN, policy], check=True, env=environment)
                seconds.append(time.perf_counter() - started)
        print(f"{policy}: {seconds[0]:.1f} s compiling, {min(seconds[1:]):.1f} s from the cache", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["bubblerank", "toprank", "batchrank", "cascade_klucb", "cascade_ucb1", "ranked_exp3"])
