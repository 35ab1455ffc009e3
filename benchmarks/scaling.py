"""Weak scaling: twice the devices, twice the lanes, the same time? And twice the processes.

python benchmarks/scaling.py [LANES_PER_DEVICE [REPEATS]]
"""

import os
import socket
import subprocess
import sys

RUN = """
import sys
import jaxrank as jr
address, process, processes, devices, lanes = sys.argv[1], *map(int, sys.argv[2:])
if processes > 1:
    jr.distributed.start(address, processes, process)
environment = jr.ClickBandit(jr.datasets.synthetic("cm", 10), top=5)
options = {"num_seeds": lanes * devices * processes // 10, "num_records": 10, "progress": False}
for _ in range(2):  # once to compile
    result = jr.simulate(jr.BubbleRank(), environment, 20_000, **options)
print(result.attrs["wall_time_seconds"], flush=True)
jr.distributed.leave()
"""


def seconds(devices: int, processes: int, lanes: int) -> float:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    cores = sorted(os.sched_getaffinity(0))
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}
    running = []
    for process in range(processes):
        arguments = [address, process, processes, devices, lanes]
        # As many cores as devices; otherwise XLA's own threads would use the others too.
        own = ",".join(str(core) for core in cores[process * devices : (process + 1) * devices])
        command = ["taskset", "-c", own, sys.executable, "-c", RUN, *map(str, arguments)]
        running.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        )
    return max(float(process.communicate()[0].split()[-1]) for process in running)


lanes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
print("| devices | processes | lanes | seconds | lane-steps/s | efficiency |\n|---|---|---|---|---|---|")
base = 0.0
for devices, processes in ((1, 1), (2, 1), (1, 2)):
    best = min(seconds(devices, processes, lanes) for _ in range(repeats))
    base = base or best
    total = lanes * devices * processes
    rate = total * 20_000 / best / 1e6
    print(f"| {devices} | {processes} | {total:,} | {best:.2f} | {rate:.2f} M | {base / best:.0%} |", flush=True)
