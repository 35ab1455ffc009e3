"""Forgetting compiled code, before a process has too much of it.

JAX keeps what it compiled, and every function is a few maps of the process's memory, of which Linux allows 65,530.
Beyond that XLA ends in "LLVM compilation error: Cannot allocate memory". So what runs many different simulations one
after the other, as sweeps and figures do, asks for this between them.
"""

from pathlib import Path

import jax

MOST_MAPS = 30_000


def forget_if_much(maps: Path = Path("/proc/self/maps")) -> None:
    """Lets JAX forget all that it compiled, if the process has more than ``MOST_MAPS`` maps; on Linux only."""
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
