"""How long a first run compiles on this machine's CPU, without and with cached compilations, for every policy.

    python benchmarks/start.py [POLICY …]

Every policy runs in two processes of its own: one that compiles, and one that finds its functions in JAX's persistent
compilation cache, as a second ``jaxrank`` command does. Seconds of a first ``jr.simulate`` of two steps, which is
almost all compilation, by the clock and of CPU time, and CPU seconds of the whole process with its imports. By the
clock, other programs on the machine count.
1,000 lanes, CM, K = L = 10, or 100 lanes with features: the worlds of ``accelerators.py``. The table is
results/start.md, or printed if policies are named.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RUN = """
import json, os, sys
import accelerators
import jaxrank as jr
policy, environment, seeds, metric = accelerators.world(sys.argv[1], 1_000, 10)
if not isinstance(environment, jr.ClickBandit):
    policy, environment, seeds, metric = accelerators.world(sys.argv[1], 100, 10)
def now():
    user, system, *_, clock = os.times()
    return user + system, clock
before = now()
jr.simulate(policy, environment, 2, num_seeds=seeds, num_records=1, metrics=(metric,), progress=False)
after = now()
print(json.dumps([after[0] - before[0], after[1] - before[1], after[0]]))
"""


def main(policies: list[str]) -> None:
    import jaxrank as jr

    columns = ("policy", "compiling, CPU s", "by the clock", "from the cache, CPU s", "whole process", "from the cache")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for policy in policies or jr.available():
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
            first, second = (measure(policy, environment) for _ in range(2))
        seconds = first[0], first[1], second[0], first[2], second[2]
        lines.append(f"| {policy} | {' | '.join(f'{one:.1f}' for one in seconds)} |")
        print(lines[-1], flush=True)
    if not policies:
        title = "# Compiling on a CPU\n\nWritten by `python benchmarks/start.py`, which says what is measured.\n\n"
        (HERE / "results" / "start.md").write_text(title + "\n".join(lines) + "\n", encoding="utf-8")


def measure(policy: str, environment: dict[str, str]) -> list[float]:
    command = [sys.executable, "-c", RUN, policy]
    done = subprocess.run(command, check=True, env=environment, cwd=HERE, capture_output=True, text=True)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


if __name__ == "__main__":
    main(sys.argv[1:])
