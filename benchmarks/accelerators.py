"""What accelerators would run: calls compiled for named devices, without having one, and read (``compiled.py``).

    pip install -e '.[gpu-compile]'                      # or tpu-compile, in an environment of its own
    python benchmarks/accelerators.py --device a100 --policy bubblerank cascade_ucb1 --way kernel entries loop

Every cell is compiled in a process of its own and added to accelerators.jsonl in ``--out``, where a cell that is there
already is not compiled again; accelerators.md is the table of all of them. Nothing is run: times are those of a model,
``modelled``, and no measurements.
"""

import argparse
import contextlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEVICES = ("a100", "h100", "v5e")
POLICIES = ("bubblerank", "toprank", "batchrank", "cascade_ucb1", "cascade_klucb", "ranked_exp3", "pbm_ucb")
WITH_FEATURES = ("pdgd", "pairrank", "cascade_hybrid")
_STEPS, _RECORDS = 100_000, 200
_MODELLED = (10_000, 100_000, 1_000_000)  # lanes
# The model. Of a loop: a kernel of a CUDA graph, or an operation of a TPU, starts after this time; a wait of the host;
# and memory is read and written at this share of its bandwidth. Of a kernel: a warp issues an instruction every so many
# cycles, and a scheduler at most this share of its slots.
_KERNEL_SECONDS, _WAIT_SECONDS, _BANDWIDTH_SHARE = 2e-6, 12e-6, 0.8
_TPU_OP_SECONDS = 0.5e-6
_CYCLES, _ISSUE_SHARE = 6, 0.7
_TPU_BANDWIDTH = 819e9  # bytes a second, of a v5e
_BLOCK = 128  # lanes, and threads, of a program of a kernel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", nargs="+", choices=DEVICES, default=["a100"])
    parser.add_argument("--policy", nargs="+", default=POLICIES, help=f"{', '.join((*POLICIES, *WITH_FEATURES))}, …")
    parser.add_argument("--lanes", nargs="+", type=int, default=[100_000])
    parser.add_argument("--items", nargs="+", type=int, default=[10])
    parser.add_argument("--way", nargs="+", choices=("kernel", "entries", "loop"), default=["kernel", "entries"])
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds to compile one cell for")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "accelerators.jsonl"
    known = read(file)
    for device in options.device:
        for policy in options.policy:
            for way in options.way:
                for lanes in options.lanes:
                    for items in options.items:
                        cell = {"device": device, "policy": policy, "way": way, "lanes": lanes, "items": items}
                        if key(cell) in known:
                            continue
                        row = {**cell, **in_own_process(cell, options.timeout)}
                        known[key(cell)] = row
                        print(json.dumps(row), flush=True)
                        with open(file, "a") as lines:
                            lines.write(json.dumps(row) + "\n")
    (options.out / "accelerators.md").write_text(page(list(known.values())), encoding="utf-8")


def key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[name] for name in ("device", "policy", "way", "lanes", "items"))


def read(file: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {key(row): row for row in rows}


def in_own_process(cell: dict[str, Any], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        tpu = {
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": "v5litepod-4",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_WORKER_ID": "0",
        }
        gpu = {"XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_module_re=advance --xla_dump_hlo_as_text"}
        environment = os.environ | {"JAX_PLATFORMS": "cpu"} | (tpu if cell["device"] == "v5e" else gpu)
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # what is read from it is not dumped
        command = [sys.executable, "-c", f"import accelerators; accelerators.compile_cell({cell!r}, {folder!r})"]
        try:
            done = subprocess.run(
                command, env=environment, cwd=HERE, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not compiled in {seconds:.0f} s"}
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {"error": done.stderr.strip().splitlines()[-1][:300]}


def topology(device: str) -> Any:
    from jax.experimental import topologies

    if device == "v5e":
        return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    text = (HERE / "devices" / f"{device}.txtpb").read_text()
    return topologies.get_topology_desc(platform="cuda", target_config=text, topology="1x1x1").devices


def world(policy: str, lanes: int, items: int) -> tuple[Any, Any, int, str]:
    """The policy, its environment, the number of seeds, and the metric to sum."""
    import numpy as np

    import jaxrank as jr
    from jaxrank.click_models import graded_user
    from jaxrank.core.types import learns_ranker
    from jaxrank.datasets import synthetic
    from jaxrank.policies.linear_cascade import LinearCascade

    if policy.startswith("pbm_"):
        model = synthetic("pbm", queries := math.gcd(lanes, 1_000), items)
        made = jr.make(policy, examination=np.asarray(model.examination[:10]))
    else:
        model = synthetic("cm", queries := math.gcd(lanes, 1_000), items)
        made = jr.make(policy)
    if isinstance(made, LinearCascade):
        ratings = jr.datasets.synthetic_ratings(300, 200, 0.07)
        topics = jr.datasets.topic_bandit(ratings, num_topics=20, list_size=10, num_users=20)
        return made, topics, lanes // 20, "regret"
    if learns_ranker(made):
        data = jr.datasets.synthetic_letor(100).train
        return made, jr.QueryStream(data, graded_user("perfect")), lanes, "cndcg"
    size = min(items, 10)
    return made, jr.ClickBandit(model, list_size=size, top=size // 2), lanes // queries, "regret"


def compile_cell(cell: dict[str, Any], folder: str) -> None:
    """Compiles one cell and prints what it is made of, as JSON."""
    import compiled
    import numpy as np
    from jax.sharding import Mesh

    from jaxrank.engine import memory
    from jaxrank.engine.lanes import AXIS
    from jaxrank.engine.request import Request
    from jaxrank.engine.task import prepare

    mesh = Mesh(np.array(topology(cell["device"])[:1]), (AXIS,))
    policy, environment, seeds, metric = world(cell["policy"], cell["lanes"], cell["items"])
    request = Request(_STEPS, num_seeds=seeds, num_records=_RECORDS, metrics=(metric,), mesh=mesh)
    task = prepare(policy, environment, request)
    started = cpu_seconds()
    lowered = memory.lower_call(task, cell["way"])
    middle = cpu_seconds()
    executable = lowered.compile()
    row: dict[str, Any] = {
        "chosen": str(task.way),
        "lower_seconds": round(middle - started, 1),
        "compile_seconds": round(cpu_seconds() - middle, 1),
    }
    analysis = executable.memory_analysis()
    row["argument_bytes"] = analysis.argument_size_in_bytes
    row["temporary_bytes"] = analysis.temp_size_in_bytes
    row["collectives"] = len(re.findall(r"\b(?:all-(?:reduce|gather|to-all)|collective-permute)", executable.as_text()))
    lanes = task.lane_shapes(task.num_lanes).key.shape[0]
    entry = compiled.loops(executable.as_text())
    if cell["way"] == "kernel":
        row |= of_kernel(Path(folder), cell["device"]) if cell["device"] != "v5e" else {}
        row["kernels_a_call"] = entry.kernels
        row["bytes_a_call"] = entry.bytes // lanes
        row["waits"] = 0
    else:
        step = largest(largest(entry))
        kernels, moved = usual(step)
        row["kernels"], row["bytes"] = kernels, moved // lanes
        every, all_moved = total(step)
        row["rare_kernels"], row["rare_bytes"] = every - kernels, (all_moved - moved) // lanes
        row["waits"] = 0
        for thunks in Path(folder).glob("*thunk_sequence_after_thunk_passes.txt"):
            row["waits"] = compiled.waits(thunks.read_text())
    print(json.dumps(row))


def cpu_seconds() -> float:
    """Of this process and of those that it waited for: other programs on the machine do not count."""
    return sum(os.times()[:4])


def largest(loop: Any) -> Any:
    """Its loop with the most bytes, or itself: the loop over intervals of an entry, the loop over steps of that."""
    whiles = [inner for inner in loop.inner if inner.name == "while"]
    return max(whiles, key=lambda inner: total(inner)[1]) if whiles else loop


def total(loop: Any) -> tuple[int, int]:
    """Kernels and bytes of one round of a loop, with all rounds of the loops in it, or one if XLA knows no number."""
    return _with_inner(loop, loop.inner, total)


def usual(loop: Any) -> tuple[int, int]:
    """Likewise without branches and without loops of unknown length: those are rare branches, or skipped as a rule."""
    return _with_inner(loop, [inner for inner in loop.inner if inner.rounds is not None], usual)


def _with_inner(loop: Any, inner: list[Any], count: Any) -> tuple[int, int]:
    parts = [(one.rounds or 1, *count(one)) for one in inner]
    return loop.kernels + sum(n * k for n, k, _ in parts), loop.bytes + sum(n * b for n, _, b in parts)


def of_kernel(folder: Path, device: str) -> dict[str, Any]:
    """Registers, spills and instructions of the largest kernel, by NVIDIA's assembler."""
    import compiled

    file = max(folder.glob("*.ptx"), key=lambda path: path.stat().st_size)
    tools = [*Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/ptxas")]
    assembler = [str(tools[0]) if tools else "ptxas", "-v", f"-arch={'sm_80' if device == 'a100' else 'sm_90a'}"]
    said = subprocess.run([*assembler, str(file), "-o", os.devnull], capture_output=True, text=True, check=True)
    spilled = re.search(r"(\d+) bytes spill stores", said.stderr)
    registers = re.search(r"Used (\d+) registers", said.stderr)
    shortest, every = compiled.step_instructions(file.read_text())
    return {
        "registers": int(registers[1]) if registers else None,
        "spilled_bytes": int(spilled[1]) if spilled else None,
        "instructions": shortest,
        "instructions_with_rare": every,
    }


def modelled(row: dict[str, Any], rare: bool = False) -> float | None:
    """Lane-steps a second by the model; with ``rare``, of steps in which some lane takes the rare branch."""
    if "error" in row or (row["way"], row["device"]) == ("kernel", "v5e"):  # its instructions are not known
        return None
    if row["way"] != "kernel":
        kernels, moved = row["kernels"], row["bytes"]
        if rare:
            kernels, moved = kernels + row["rare_kernels"], moved + row["rare_bytes"]
        bandwidth = _TPU_BANDWIDTH if row["device"] == "v5e" else fact(row["device"], "memory_bandwidth")
        start = _TPU_OP_SECONDS if row["device"] == "v5e" else _KERNEL_SECONDS
        seconds = kernels * start + row["waits"] * _WAIT_SECONDS
        return row["lanes"] / (seconds + moved * row["lanes"] / (_BANDWIDTH_SHARE * bandwidth))
    cores, clock = fact(row["device"], "core_count"), 1e9 * fact(row["device"], "clock_rate_ghz")
    at_once = math.floor(65_536 / (row["registers"] * _BLOCK))  # blocks of a multiprocessor
    blocks = math.ceil(row["lanes"] / _BLOCK)
    instructions = row["instructions_with_rare" if rare else "instructions"]
    seconds = 0.0
    while blocks > 0:  # wave after wave
        wave = min(blocks, cores * at_once)
        warps = math.ceil(wave / cores)  # of each of the four schedulers: a block has four warps
        issued = min(warps / _CYCLES, _ISSUE_SHARE)
        seconds += warps * instructions / (issued * clock)
        blocks -= wave
    return row["lanes"] / seconds


def fact(device: str, name: str) -> float:
    text = (HERE / "devices" / f"{device}.txtpb").read_text()
    return float(re.search(rf"{name}: ([\d.]+)", text)[1])  # type: ignore[index]


# The loop of 0.1.0 on an A100 (CM, K = L = 10; PDGD with 10,000 lanes, the two others with 1,000), as compiled by the
# prototype of this script: kernels of a step, bytes a lane-step, waits of the host in every step.
BEFORE = {
    "bubblerank": (18, 1_168, 2),
    "toprank": (17, 2_705, 2),
    "batchrank": (14, 1_125, 2),
    "cascade_klucb": (16, 1_289, 2),
    "pdgd": (25, 6_621, 2),
    "pairrank": (61, 119_000, 2),
    "cascade_hybrid": (243, 365_000, 2),
}


def goals(rows: list[dict[str, Any]]) -> list[str]:
    """The table of what is wanted on an A100, what was, and what is."""
    lines = [
        "| policy | goal | 0.1.0 without rare branches | now | spills, waits | "
        "model: M lane-steps/s at 10⁴ / 10⁵ / 10⁶ lanes, 0.1.0 | now |",
        "|---|---|---|---|---|---|---|",
    ]
    wanted = [(policy, "kernel", 100_000, "one kernel a call, no spills") for policy in POLICIES]
    wanted += [(policy, "entries", 100_000, "as a loop: 8 kernels, 400 bytes") for policy in POLICIES]
    wanted += [("pdgd", "loop", 10_000, "15 kernels, 4,000 bytes"), ("pairrank", "loop", 1_000, "no growth with lanes")]
    wanted += [("cascade_hybrid", "loop", 1_000, "120 kernels")]
    known = {key(row): row for row in rows}
    for policy, way, lanes, goal in wanted:
        row = known.get(("a100", policy, way, lanes, 10))
        if row is None or "error" in row:
            continue
        before, was = "", ""
        if policy in BEFORE:
            kernels, moved, waits = BEFORE[policy]
            before = f"{kernels} kernels a step, {moved:,} bytes a lane, {waits} waits"
            old = {"way": "loop", "device": "a100", "kernels": kernels, "bytes": moved, "waits": waits}
            was = _rate(False)(old)
        if way == "kernel":
            now = f"1 kernel a call, {row['registers']} registers, {row['instructions']:,} instructions a lane-step"
            spills = f"{row['spilled_bytes']} bytes, {row['waits']}"
        else:
            now = f"{row['kernels']} kernels a step, {row['bytes']:,} bytes a lane"
            if row["rare_kernels"]:
                now += f"; rare: {row['rare_kernels']} more, {row['rare_bytes']:,} bytes"
            spills = f"–, {row['waits']}"
        cells = (policy, goal, before, now, spills, was, _rate(False)(row))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def page(rows: list[dict[str, Any]]) -> str:
    """The tables, in Markdown."""
    text = [
        "# Calls compiled for accelerators, without having one",
        "",
        "Written by `python benchmarks/accelerators.py`; [the method](../README.md#accelerators). Nothing was run: "
        "speeds are those of a model. CM (PBM for `pbm_…`), K = 10, one device; query streams of up to 80 documents "
        "with d = 20, and topic bandits of 200 items. Compile times are CPU seconds of a busy machine.",
        "",
    ]
    text += ["## What is wanted on an A100", "", *goals(rows), ""]
    kernels = [row for row in rows if row["way"] == "kernel" and row["device"] != "v5e"]
    on_tpu = [row for row in rows if row["way"] == "kernel" and row["device"] == "v5e"]
    others = [row for row in rows if row["way"] != "kernel"]
    if kernels:
        text += ["## One kernel a call", "", *_table(_KERNEL_COLUMNS, kernels), ""]
    if on_tpu:
        text += ["## One kernel a call on a TPU", "", *_table(_TPU_KERNEL_COLUMNS, on_tpu), ""]
    if others:
        text += ["## XLA loops", "", *_table(_LOOP_COLUMNS, others), ""]
    return "\n".join(text)


def _rate(rare: bool) -> Any:
    def shown(row: dict[str, Any]) -> str:
        speeds = [modelled({**row, "lanes": lanes}, rare) for lanes in _MODELLED]
        return "" if None in speeds else " / ".join(f"{speed / 1e6:,.0f}" for speed in speeds)

    return shown


def _value(name: str, scale: float = 1, digits: int = 0) -> Any:
    return lambda row: "" if row.get(name) is None else f"{row[name] / scale:,.{digits}f}"


_COMMON = {
    "device": lambda row: row["device"],
    "policy": lambda row: row["policy"],
    "L": lambda row: str(row["items"]) if row["policy"] not in WITH_FEATURES else "",
    "lanes": _value("lanes"),
}
_MEMORY = {
    "arguments MB": _value("argument_bytes", 1e6, 1),
    "temporary MB": _value("temporary_bytes", 1e6, 1),
    "waits": _value("waits"),
    "compile CPU s": lambda row: row.get("error") or f"{row['lower_seconds'] + row['compile_seconds']:.0f}",
}
_KERNEL_COLUMNS = {
    **_COMMON,
    "registers": _value("registers"),
    "spilled bytes": _value("spilled_bytes"),
    "instructions a lane-step": _value("instructions"),
    "with rare branches": _value("instructions_with_rare"),
    **_MEMORY,
    "model: M lane-steps/s at 10⁴ / 10⁵ / 10⁶ lanes": _rate(False),
    "model: rare in every step": _rate(True),
}
_TPU_KERNEL_COLUMNS = {**_COMMON, "bytes a lane, of a call": _value("bytes_a_call"), **_MEMORY}
_LOOP_COLUMNS = {
    **_COMMON,
    "way": lambda row: row["way"],
    "kernels a step": _value("kernels"),
    "bytes a lane-step": _value("bytes"),
    "rare: kernels": _value("rare_kernels"),
    "rare: bytes": _value("rare_bytes"),
    **_MEMORY,
    "model: M lane-steps/s at 10⁴ / 10⁵ / 10⁶ lanes": _rate(False),
    "model: rare in every step": _rate(True),
}


def _table(columns: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    lines = [list(columns), ["---"] * len(columns)]
    lines += [[column(row) for column in columns.values()] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
