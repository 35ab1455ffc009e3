"""Reads what XLA compiled: kernels and bytes of every loop in optimised HLO, waits in GPU thunks, instructions in PTX.

The counts of bytes are this file's own reading: a kernel reads its operands and writes its results once; slices and
gathers read what they return, in-place updates write what they change; on a TPU, tiles are filled up and what lies in
VMEM is not counted.
"""

import heapq
import math
import re
from dataclasses import dataclass, field

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "f64": 8}
_NO_KERNEL = {
    "parameter", "get-tuple-element", "tuple", "constant", "bitcast", "after-all", "while", "conditional", "call",
    "copy-done", "async-done", "slice-done", "opt-barrier", "partition-id",
}  # fmt: skip
_SLICES = {"dynamic-slice", "slice", "gather"}
_UPDATES = {"dynamic-update-slice", "scatter"}


@dataclass
class Instruction:
    name: str
    shape: str
    op: str
    operands: list[str]
    rest: str


@dataclass
class Loop:
    """A computation that runs again and again: the entry, the body of a loop, or a branch."""

    name: str
    kernels: int
    bytes: int
    rounds: int | None  # of a loop, if XLA knows their number
    inner: list["Loop"] = field(default_factory=list)


def loops(text: str) -> Loop:
    """The entry computation of optimised HLO, with the loops and branches in it."""
    computations, entry = _parse(text)
    return _loop(computations, entry, "entry", 1)


def _parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    computations: dict[str, list[Instruction]] = {}
    current, entry = None, ""
    for line in text.splitlines():
        if head := re.match(r"^(ENTRY )?%([\w.\-]+) \(.*\{\s*$", line):
            current = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := re.match(r"^\s+(?:ROOT )?%([\w.\-]+) = (.*)$", line)):
            shape, rest = _first(found[2]) if found[2].startswith("(") else found[2].split(" ", 1)
            op, _, rest = rest.strip().partition("(")
            operands, rest = _first("(" + rest)
            current.append(Instruction(found[1], shape, op, re.findall(r"%([\w.\-]+)", operands), rest))
    return computations, entry


def _first(text: str) -> tuple[str, str]:
    """The parenthesis that a text starts with, and what follows it."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[: i + 1], text[i + 1 :]
    return text, ""


def _loop(computations: dict[str, list[Instruction]], name: str, label: str, rounds: int | None) -> Loop:
    body = computations[name]
    shapes = {one.name: one.shape for one in body}
    found = Loop(label, 0, 0, rounds)
    for one in body:
        called = re.findall(r"(?:body|condition|to_apply)=%([\w.\-]+)", one.rest) if one.op in ("while", "call") else []
        if one.op == "while":
            trips = re.search(r'known_trip_count":\{"n":"(\d+)"', one.rest)
            rounds_inside = int(trips[1]) if trips else None
            inner = _loop(computations, re.search(r"body=%([\w.\-]+)", one.rest)[1], "while", rounds_inside)  # type: ignore[index]
            condition = _loop(computations, re.search(r"condition=%([\w.\-]+)", one.rest)[1], "", 1)  # type: ignore[index]
            inner.kernels += condition.kernels
            found.inner.append(inner)
        elif one.op == "call":
            part = _loop(computations, called[0], "call", 1)
            found.kernels, found.bytes = found.kernels + part.kernels, found.bytes + part.bytes
            found.inner += part.inner
        elif one.op == "conditional":
            branches = " ".join(
                re.findall(r"(?:branch_computations=\{[^}]*\}|(?:true|false)_computation=%[\w.\-]+)", one.rest)
            )
            found.inner += [_loop(computations, b, "branch", None) for b in re.findall(r"%([\w.\-]+)", branches)]
        elif one.op not in _NO_KERNEL and "AllocateBuffer" not in one.rest and "ConcatBitcast" not in one.rest:
            found.kernels += 1
            found.bytes += _traffic(computations, shapes, one)
    return found


def _arrays(shape: str) -> list[tuple[str, list[int], str]]:
    found = re.findall(r"(pred|bf16|[suf]\d+)\[([\d,]*)\](?:\{([^}]*)\})?", shape)
    return [(kind, [int(x) for x in sizes.split(",") if x], layout) for kind, sizes, layout in found]


def _size(shape: str, everywhere: bool = False) -> int:
    """Bytes of the arrays in HBM, or everywhere, with their tiles filled up."""
    return sum(_padded(*one) for one in _arrays(shape) if everywhere or "S(" not in one[2])


def _padded(kind: str, sizes: list[int], layout: str) -> int:
    order, _, tiles = layout.partition(":")
    tile = re.match(r"T\(([\d,]+)\)", tiles)
    if not tile or not sizes:
        return _BYTES.get(kind, 4) * math.prod(sizes)
    physical = [sizes[int(i)] for i in reversed(order.split(","))]
    in_tile = [int(x) for x in tile[1].split(",")]
    physical = [1] * (len(in_tile) - len(physical)) + physical
    for i, length in enumerate(reversed(in_tile)):
        physical[-1 - i] = -(-physical[-1 - i] // length) * length
    return _BYTES.get(kind, 4) * math.prod(physical)


def _traffic(computations: dict[str, list[Instruction]], shapes: dict[str, str], one: Instruction) -> int:
    """Bytes that a kernel reads and writes."""
    if one.op in ("copy-start", "slice-start"):  # one transfer between HBM and VMEM
        return min((_padded(*x) for x in _arrays(one.shape) if x[1]), default=0)
    called = re.search(r"calls=%([\w.\-]+)", one.rest)
    body = computations.get(called[1], []) if called else []
    if not body:
        if one.op in _UPDATES:
            return 2 * _size(shapes.get(one.operands[1], ""))
        if one.op in _SLICES:
            return 2 * _size(one.shape)
        return sum(_size(shapes.get(x, "")) for x in set(one.operands)) + _size(one.shape)
    size = {x.name: _size(x.shape, everywhere=True) for x in body}
    by_name = {x.name: x for x in body}

    def users(name: str) -> list[tuple[Instruction, int]]:
        found: list[tuple[Instruction, int]] = []
        for x in body:
            if name in x.operands:
                found += users(x.name) if x.op in ("bitcast", "reshape") else [(x, x.operands.index(name))]
        return found

    read = 0
    for x in body:
        if x.op == "parameter":
            uses = users(x.name)
            if uses and all(y.op in _SLICES and i == 0 for y, i in uses):
                read += min(size[x.name], sum(size[y.name] for y, _ in uses))
            elif not (uses and all(y.op in _UPDATES and i == 0 for y, i in uses)):
                read += size[x.name]
    read -= min(read, sum(_size(s, True) - _size(s) for s in (shapes.get(x, "") for x in set(one.operands))))

    def written(x: Instruction) -> int:
        while x.op in ("bitcast", "copy", "reshape") and x.operands and x.operands[0] in by_name:
            x = by_name[x.operands[0]]
        if x.op in _UPDATES:
            return size.get(x.operands[1 if x.op == "dynamic-update-slice" else -1], 0)
        return size[x.name]

    root = body[-1]
    results = [by_name[x] for x in root.operands] if root.op == "tuple" else [root]
    return read + min(sum(map(written, results)), _size(one.shape))


def waits(thunks: str) -> int:
    """Loops and conditionals of GPU thunks outside of CUDA graphs: for each of their rounds, the host waits.

    The outermost loop is the one over intervals, whose number of rounds XLA knows; it is not counted.
    """
    found, graph, outermost = 0, None, None
    for line in thunks.splitlines():
        kind = re.match(r"^(\s*)\d+: (k\w+)", line)
        if not kind:
            continue
        depth = len(kind[1])
        if graph is not None and depth <= graph:
            graph = None
        if kind[2] == "kCommandBuffer" and graph is None:
            graph = depth
        elif kind[2] in ("kWhile", "kConditional") and graph is None:
            if outermost is None:
                outermost = depth
            else:
                found += 1
    return found


@dataclass
class Block:
    instructions: int = 0
    follows: list[str] = field(default_factory=list)


def step_instructions(ptx: str) -> tuple[int, int]:
    """PTX instructions of the loop over steps in a kernel: on its shortest path, and in all.

    That loop is the largest one inside of the outermost loop. On the path, rare branches are skipped and loops inside
    of the step are gone through once.
    """
    blocks = _blocks(ptx)
    natural = _natural_loops(blocks)
    outermost = max(natural.items(), key=lambda item: len(item[1]))
    inside = {head: body for head, body in natural.items() if body < outermost[1]} or dict([outermost])
    weight = lambda body: sum(blocks[name].instructions for name in body)  # noqa: E731
    head, body = max(inside.items(), key=lambda item: weight(item[1]))
    distance, queue = {}, [(blocks[head].instructions, head)]
    while queue:
        length, name = heapq.heappop(queue)
        if name in distance:
            continue
        distance[name] = length
        for other in blocks[name].follows:
            if other == head:
                return length, weight(body)
            if other in body and other not in distance:
                heapq.heappush(queue, (length + blocks[other].instructions, other))
    return weight(body), weight(body)


def _blocks(ptx: str) -> dict[str, Block]:
    blocks, name = {"": Block()}, ""
    for line in ptx[ptx.index(".entry") :].splitlines():
        line = line.split("//")[0].strip()
        if label := re.match(r"^(\$\w+):", line):
            blocks[name].follows.append(label[1])
            name = label[1]
            blocks[name] = Block()
        elif line.endswith(";") and not line.startswith("."):
            blocks[name].instructions += 1
            if jump := re.match(r"^(@\S+\s+)?bra(?:\.uni)?\s+(\$\w+)", line):
                after = f"{name}+"  # what stands after a jump: it is reached only if the jump is conditional
                blocks[name].follows = [jump[2], *([after] if jump[1] else [])]
                name = after
                blocks[name] = Block()
    for block in blocks.values():
        block.follows = [x for x in block.follows if x in blocks]
    return blocks


def _natural_loops(blocks: dict[str, Block]) -> dict[str, set[str]]:
    """{head: blocks} of every loop, by back edges of a depth-first search."""
    before: dict[str, list[str]] = {name: [] for name in blocks}
    for name, block in blocks.items():
        for other in block.follows:
            before[other].append(name)
    found: dict[str, set[str]] = {}
    state: dict[str, int] = {}
    stack = [("", iter(blocks[""].follows))]
    state[""] = 1
    while stack:
        name, rest = stack[-1]
        other = next(rest, None)
        if other is None:
            state[name] = 2
            stack.pop()
        elif state.get(other) == 1:
            body, queue = found.setdefault(other, {other}), [name]
            while queue:
                one = queue.pop()
                if one not in body:
                    body.add(one)
                    queue += before[one]
        elif other not in state:
            state[other] = 1
            stack.append((other, iter(blocks[other].follows)))
    return found
