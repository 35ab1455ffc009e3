"""Puts the default generator on trial: dieharder's battery, on its words in the orders in which a simulation uses them.

    python benchmarks/randomness.py FOLDER        # needs dieharder (apt-get install dieharder); hours for everything
    python benchmarks/randomness.py FOLDER --table

There are three streams of 32-bit words:

- draws: one lane, step after step; in each step 16 words from each of the four keys (query, rank, clicks, update);
- lanes: the first word of the key for clicks of 16,384 lanes (128 instances × 128 seeds), step after step;
- steps: the first word of the key for ranking of one lane in all of its steps, then of the next lane.

Every test of every stream has a root seed of its own. Finished tests are kept in FOLDER/tests.jsonl and not run again,
so the script can be stopped at any time. ``--table`` writes what there is as FOLDER/randomness.md.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrank.core import random

WORDS = 2**20  # of a block
# The tests of dieharder -l that its author calls good, cheap ones first: (number, -n option, -p option). The latter is
# the number of p-values that are combined, 0 for dieharder's own number. Of the lagged sums, which take most of the
# time of dieharder -a, only some lags.
TESTS = [
    *((number, 0, 0) for number in (100, 101, 2, 3, 10, 11, 12, 15, 16, 13, 204, 0, 8, 9, 4, 205, 206, 207, 208, 209)),
    *((202, n, 0) for n in (2, 3, 4, 5)),
    *((203, lag, 20) for lag in (0, 1, 3, 15, 31)),
    *((200, n, 0) for n in (1, 2, 4, 8)),
    *((number, 0, 0) for number in (102, 17, 1)),
    *((201, n, 0) for n in (2, 3, 4, 5)),
]
WEAK, FAILED = 0.005, 1e-6  # dieharder's own words for a p-value this close to 0 or 1


def _draws(root: jax.Array, block: jax.Array) -> jax.Array:
    def step(t: jax.Array) -> jax.Array:
        keys = random.step_keys(random.lane_key(root, jnp.int32(0), jnp.int32(0)), t)
        return jnp.concatenate([jax.random.bits(key, (16,), jnp.uint32) for key in keys])

    return jax.vmap(step)(1 + block * (WORDS // 64) + jnp.arange(WORDS // 64, dtype=jnp.int32))


def _lanes(root: jax.Array, block: jax.Array) -> jax.Array:
    def first(t: jax.Array, lane: jax.Array) -> jax.Array:
        keys = random.step_keys(random.lane_key(root, lane // 128, lane % 128), t)
        return jax.random.bits(keys[2], (), jnp.uint32)

    steps = 1 + block * (WORDS // 2**14) + jnp.arange(WORDS // 2**14, dtype=jnp.int32)
    return jax.vmap(lambda t: jax.vmap(lambda lane: first(t, lane))(jnp.arange(2**14, dtype=jnp.int32)))(steps)


def _steps(root: jax.Array, block: jax.Array) -> jax.Array:
    blocks = 2**31 // WORDS - 1  # of one lane: steps are int32
    lane = jax.lax.optimization_barrier(random.lane_key(root, jnp.int32(0), block // blocks))  # computed once
    steps = 1 + (block % blocks) * WORDS + jnp.arange(WORDS, dtype=jnp.int32)
    return jax.vmap(lambda t: jax.random.bits(random.step_keys(lane, t)[1], (), jnp.uint32))(steps)


STREAMS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {"draws": _draws, "lanes": _lanes, "steps": _steps}


def words(stream: str, seed: int) -> Iterator[np.ndarray]:
    """Blocks of uint32 words of a stream, without end."""
    make = jax.jit(STREAMS[stream])
    root, block = random.root_key(seed), 0
    while True:
        yield np.asarray(make(root, jnp.int32(block))).ravel()
        block += 1


def trial(stream: str, number: int, option: int, p_values: int, seed: int) -> list[dict[str, object]]:
    """Runs one test of dieharder; a row for each of its results."""
    command = ["dieharder", "-g", "200", "-d", str(number), "-n", str(option), "-p", str(p_values), "-c", ","]
    command += ["-D", "test_name", "-D", "ntuple", "-D", "tsamples", "-D", "psamples", "-D", "pvalues"]
    battery = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert battery.stdin is not None and battery.stdout is not None
    used = 0
    try:
        for block in words(stream, seed):
            battery.stdin.write(block.data)
            used += block.size
    except BrokenPipeError:  # it has seen enough
        pass
    output = battery.stdout.read().decode()
    if battery.wait() != 0:
        raise SystemExit(f"dieharder failed: {' '.join(command)}: {output}")
    rows = []
    for line in output.splitlines():
        name, ntuple, samples, count, p = (text.strip() for text in line.split(","))
        rows.append(
            {
                "stream": stream,
                "test": number,
                "option": option,
                "seed": seed,
                "words": used,
                "name": name,
                "ntuple": int(ntuple),
                "samples": int(samples),
                "p_values": int(count),
                "p": float(p),
            }
        )
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """The p-values in Markdown, a column for each stream."""
    found: dict[tuple[object, ...], dict[str, float]] = {}
    for row in rows:
        number = 0  # some tests have several results of one kind
        while str(row["stream"]) in found.get(key := (row["name"], row["ntuple"], row["samples"], number), {}):
            number += 1
        found.setdefault(key, {})[str(row["stream"])] = float(str(row["p"]))
    lines = [
        f"| test | n | samples | {' | '.join(STREAMS)} |",
        f"|---|--:|--:|{'--:|' * len(STREAMS)}",
    ]
    for key, by_stream in found.items():
        cells = [
            f"{by_stream[stream]:.4f}{_mark(by_stream[stream])}" if stream in by_stream else "" for stream in STREAMS
        ]
        lines.append(f"| {' | '.join(map(str, (*key[:3], *cells)))} |")
    ps = np.array([float(str(row["p"])) for row in rows])
    far = np.minimum(ps, 1 - ps)
    read = sum({(row["stream"], row["test"], row["option"]): int(str(row["words"])) for row in rows}.values())
    version = subprocess.run(["dieharder", "-h"], capture_output=True, text=True).stdout.split("version")[1].split()[0]
    return (
        "# The default generator on trial\n\n"
        f"`python benchmarks/randomness.py` with dieharder {version}, {read:,} words read. {len(ps)} p-values, of "
        f"which {np.count_nonzero(far < FAILED)} are failures (closer than {FAILED} to 0 or 1) and "
        f"{np.count_nonzero((far < WEAK) & (far >= FAILED))} weak (closer than {WEAK}; of uniform p-values "
        f"{2 * WEAK * len(ps):.1f} are expected). The smallest is {ps.min():.5f}, the largest {ps.max():.5f}. "
        f"The script says what the three streams are. Not run: {_missing(rows)}.\n\n" + "\n".join(lines) + "\n"
    )


def _missing(rows: list[dict[str, object]]) -> str:
    """The tests of the script, by dieharder's numbers, that have no result yet."""
    done = {(row["stream"], row["test"], row["option"]) for row in rows}
    missing = [(t, n, stream) for t, n, _ in TESTS for stream in STREAMS if (stream, t, n) not in done]
    return ", ".join(f"-d {t} -n {n} of {stream}" for t, n, stream in missing) or "none"


def _mark(p: float) -> str:
    far = min(p, 1 - p)
    return " FAILED" if far < FAILED else " weak" if far < WEAK else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", action="store_true", help="only write the table of what has been run")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "tests.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    if not options.table:
        done = {(row["stream"], row["test"], row["option"]) for row in rows}
        for place, (number, option, p_values) in enumerate(TESTS):
            for index, stream in enumerate(STREAMS):
                if (stream, number, option) in done:
                    continue
                new = trial(stream, number, option, p_values, seed=1_000 * (index + 1) + place)
                with open(kept, "a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in new)
                    file.flush()
                    os.fsync(file.fileno())
                rows += new
                print(stream, number, option, [row["p"] for row in new], flush=True)
    (options.folder / "randomness.md").write_text(table(rows))


if __name__ == "__main__":
    sys.exit(main())
