"""What checkpoints cost: the size and time of one at 100,000 lanes, and what one every 60 s, the default, takes.

python benchmarks/checkpoint.py [LANES [STEPS]]
"""

import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import jaxrank as jr
from jaxrank.engine import checkpoint, run

lanes = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
environment = jr.ClickBandit(jr.datasets.synthetic("cm", 100), top=5)
options = {"num_seeds": lanes // 100, "num_records": 200, "progress": False}
times: dict[str, list[tuple[float, float]]] = {"copied": [], "written": []}  # (seconds, of a core)


def timed(name, function):
    def wrapped(*arguments, **named):
        started, busy = time.perf_counter(), time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            times[name].append((time.perf_counter() - started, time.thread_time() - busy))

    return wrapped


jr.simulate(jr.BubbleRank(), environment, steps // 10, **options)  # takes what only a first run takes, such as imports
with (
    tempfile.TemporaryDirectory() as folder,
    mock.patch.object(run.Run, "snapshot", timed("copied", run.Run.snapshot)),
    mock.patch.object(checkpoint.Checkpoints, "_write", timed("written", checkpoint.Checkpoints._write)),
):
    started = time.perf_counter()
    jr.simulate(jr.BubbleRank(), environment, steps, **options, checkpoint_dir=folder)
    saved = time.perf_counter() - started
    size = max(path.stat().st_size for path in Path(folder).glob("*/step-*"))
started = time.perf_counter()
jr.simulate(jr.BubbleRank(), environment, steps, **options)
plain = time.perf_counter() - started

print(f"{lanes:,} lanes × {steps:,} steps of BubbleRank, K = L = 10, 200 records")
print(f"the last checkpoint: {size / 1e6:.0f} MB ({size / lanes:.0f} bytes per lane)")
for name, what in (("copied", "while the run waits"), ("written", "while the run continues")):
    seconds, busy = max(times[name])
    print(f"{name} in {seconds:.2f} s ({busy:.2f} s of a core) {what}; {len(times[name])} in {saved:.0f} s")
cores = sum(busy for name in times for _, busy in times[name]) / len(times["copied"]) / 60
print(f"one every 60 s takes {cores:.2%} of a core")
print(f"whole run: {saved:.1f} s with them, {plain:.1f} s without ({saved / plain - 1:+.1%})")
