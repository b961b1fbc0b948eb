"""Writes `.cu` files: a kernel, its raw-pointer wrapper and what stands around them, with a hole at the body."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

from dice_training.cuke.device import indent
from dice_training.cuke.kernel_bodies import BodyWriter, Layout, Names, Schedule
from dice_training.cuke.module_writer import Parts, op_names
from dice_training.cuke.spec import Operand, Scalar, Spec, Step

_STATS = {
    "peak": ("m", "max_val", "mx", "row_max", "maxv", "peak"),
    "low": ("mn", "min_val", "low", "row_min"),
    "total": ("sum", "s", "acc", "total", "row_sum"),
    "sq": ("sq", "ss", "var_sum", "m2", "dev"),
    "mean": ("mean", "mu", "avg"),
    "inv": ("inv", "scale_inv", "inv_denom"),
    "rstd": ("rstd", "inv_std", "inv_rms"),
    "lse": ("lse", "log_z"),
}
_X = ("x", "in", "input", "src", "data", "a", "inp", "d_in")
_OUT = ("out", "output", "dst", "y", "result", "res", "d_out")
_N = ("n", "n", "size", "N", "count", "num_elements", "len", "total_size")
_ROWS = ("rows", "batch", "num_rows", "B", "m_rows", "batch_size")
_COLS = ("cols", "dim", "width", "num_cols", "D", "hidden", "row_len")
_I = ("i", "idx", "tid", "gid", "index")
_ROW = ("row", "b", "rid")
_COL = ("j", "col", "c", "k", "d")


def _names(spec: Spec, rng: random.Random, inplace: bool) -> Names:
    used: set[str] = {s.name for s in spec.scalars if s.name}

    def take(pool: tuple[str, ...]) -> str:
        free = [p for p in pool if p not in used]
        name = rng.choice(free)
        used.add(name)
        return name

    pointers = {}
    for operand in spec.operands:
        used.add(operand.name)
        pointers[operand.name] = operand.name
    x = take(_X)
    return Names(
        x=x,
        out=x if inplace else take(_OUT),
        n=take(_N),
        rows=take(_ROWS),
        cols=take(_COLS),
        i=take(_I),
        row=take(_ROW),
        col=take(_COL),
        tid=take(("tid", "t", "tx", "lane_id")),
        v=take(("v", "val", "value", "t", "xv")),
        shared=take(("sdata", "smem", "shared", "buf", "cache")),
        stats={stat: take(pool) for stat, pool in _STATS.items()},
        pointers=pointers,
    )


@dataclass(frozen=True)
class Launch:
    grid: str
    block: str
    shared: str
    """Dynamic shared bytes, empty for none."""
    setup: tuple[str, ...]


class KernelFileWriter:
    def __init__(self, spec: Spec, rng: random.Random) -> None:
        self.rng = rng
        self.vectors = any(o.layout == "vec" for o in spec.operands)
        self.inplace = not spec.row and rng.random() < 0.2
        self.spec = spec
        self.unit = rng.choice(("    ", "    ", "  "))
        self.names = _names(spec, rng, self.inplace)
        self.schedule = self._schedule()
        self.threads = self._block_size()
        self.dynamic = self.schedule in ("block_tree", "warp_row") and rng.random() < 0.4
        self.macro = rng.choice(
            (
                "",
                "",
                "",
                "#define BLOCK_SIZE {t}",
                "#define THREADS {t}",
                "constexpr int kThreads = {t};",
                "static const int kBlock = {t};",
            )
        )
        self.layout = Layout(
            self.schedule,
            self.dynamic,
            self._threads_text(),
            unit=self.unit,
            increments=rng.choice(("++{i}", "{i}++")),
        )
        stem = "_".join(op_names(spec)[:2])
        self.kernel = rng.choice(
            (
                stem + "_kernel",
                stem + "_kernel",
                "k_" + stem,
                stem + "_kern",
                "fused_kernel",
                stem + "_rows" if spec.row else stem + "_elementwise",
            )
        )
        self.wrapper = (
            rng.choice(("launch_", "run_", "launch_", "do_", ""))
            + stem
            + rng.choice(("", "", "_f32", "_gpu"))
        )
        if self.wrapper == stem:
            self.wrapper = stem + "_launch"
        self.restrict = rng.random() < 0.4

    def _schedule(self) -> Schedule:
        rng = self.rng
        if not self.spec.row:
            if self.vectors:
                return rng.choices(("guard", "grid2d", "stride"), (2, 3, 1))[0]
            return rng.choices(("guard", "stride", "grid2d"), (6, 4, 0.5))[0]
        return rng.choices(("thread_row", "block_serial", "block_tree", "warp_row"), (4, 3, 5, 1.5))[0]

    def _block_size(self) -> str:
        if self.schedule == "warp_row":
            return "32"
        return self.rng.choice(("256", "256", "256", "128", "512", "1024" if self.spec.row else "128", "64"))

    def _threads_text(self) -> str:
        return (
            self.macro.split("=")[0].split()[-1]
            if "=" in self.macro
            else (self.macro.split()[1] if self.macro else self.threads)
        )

    def _params(self, sizes: list[str], restrict: bool) -> list[str]:
        n = self.names
        q = " __restrict__ " if restrict else " "
        main = [] if self.inplace else [f"const float*{q}{n.x}"]
        args = main + [f"const float*{q}{n.pointers[o.name]}" for o in self.spec.operands]
        out = f"float*{q}{n.out}"
        args = [out, *args] if self.out_first else [*args, out]
        args += [f"float {s.name}" for s in self.spec.scalars]
        return args + [f"int {s}" for s in sizes]

    def _arguments(self, sizes: list[str]) -> list[str]:
        n = self.names
        args = ([] if self.inplace else [n.x]) + [n.pointers[o.name] for o in self.spec.operands]
        args = [n.out, *args] if self.out_first else [*args, n.out]
        return args + [str(s.name) for s in self.spec.scalars] + sizes

    def _sizes(self) -> tuple[list[str], list[str]]:
        """Size parameters of the kernel and of the wrapper."""
        n = self.names
        if not self.spec.row and self.schedule != "grid2d":
            sizes = [n.n, n.cols] if self.vectors else [n.n]
            return sizes, ([n.rows, n.cols] if self.vectors else sizes)
        both = [n.rows, n.cols]
        short = self.schedule in ("block_serial", "block_tree", "warp_row") and self.rng.random() < 0.5
        return ([n.cols] if short else both), both

    def _launch(self) -> Launch:
        n, rng, t = self.names, self.rng, self._threads_text()
        setup: list[str] = []
        if self.schedule == "grid2d":
            bx, by = rng.choice((("32", "8"), ("16", "16"), ("32", "4"), ("64", "4")))
            if rng.random() < 0.5:
                setup = [
                    f"dim3 block({bx}, {by});",
                    f"dim3 grid(({n.cols} + block.x - 1) / block.x, ({n.rows} + block.y - 1) / block.y);",
                ]
            else:
                setup = [
                    f"dim3 block({bx}, {by});",
                    f"dim3 grid(({n.cols} + {bx} - 1) / {bx}, ({n.rows} + {by} - 1) / {by});",
                ]
            return Launch("grid", "block", "", tuple(setup))
        if not self.macro and rng.random() < 0.6:
            t = rng.choice(("threads", "block", "block_size", "nthreads"))
            setup.append(f"{rng.choice(('const int', 'int'))} {t} = {self.threads};")
        if self.schedule in ("guard", "thread_row"):
            work = n.n if self.schedule == "guard" else n.rows
            if self.schedule == "guard" and self.vectors:
                setup.append(f"int {n.n} = {n.rows} * {n.cols};")
            grid = f"({work} + {t} - 1) / {t}"
            if rng.random() < 0.6:
                name = rng.choice([b for b in ("blocks", "grid", "num_blocks") if b != t])
                setup.append(f"{rng.choice(('const int', 'int'))} {name} = {grid};")
                grid = name
        elif self.schedule == "stride":
            grid = rng.choice(("64", "128", "256", "120", "32"))
            if self.vectors:
                setup.append(f"int {n.n} = {n.rows} * {n.cols};")
        else:
            grid = n.rows
        return Launch(grid, t, f"{t} * sizeof(float)" if self.dynamic else "", tuple(setup))

    def write(self) -> Parts:
        rng, n = self.rng, self.names
        self.out_first = not self.inplace and rng.random() < 0.1
        kernel_sizes, wrapper_sizes = self._sizes()
        launch = self._launch()
        bodies = BodyWriter(self.spec, n, self.layout, rng)
        if self.inplace:
            bodies.habits.chain = "var" if bodies.habits.chain == "ssa" else bodies.habits.chain
        hasty = bodies.hasty()
        bodies.names = _settled(n, "\n".join(hasty))
        better = bodies.better()
        head = [
            rng.choice(
                (
                    "#include <cuda_runtime.h>",
                    "#include <cuda_runtime.h>",
                    "#include <cuda_runtime.h>\n#include <math.h>",
                )
            )
        ]
        if rng.random() < 0.35:
            head.insert(0, f"// {self._title()}")
        if self.macro:
            head += ["", self.macro.format(t=self.threads)]
        comment = f"// {self._title()}\n" if rng.random() < 0.2 else ""
        arguments = ", ".join(self._params(kernel_sizes, self.restrict))
        signature = f"{comment}__global__ void {self.kernel}({arguments})"
        brace = "\n{" if rng.random() < 0.15 else " {"
        stream = rng.random() < 0.4
        params = self._params(wrapper_sizes, False) + (["cudaStream_t stream"] if stream else [])
        config = [launch.grid, launch.block]
        if launch.shared or stream:
            config.append(launch.shared or "0")
        if stream:
            config.append("stream")
        call = f"{self.kernel}<<<{', '.join(config)}>>>({', '.join(self._arguments(kernel_sizes))});"
        export = 'extern "C" ' if rng.random() < 0.15 else ""
        note = rng.choice(("", "", f"// Launches {self.kernel}.\n", "// Host wrapper.\n"))
        host = (
            f"{note}{export}void {self.wrapper}({', '.join(params)}){brace}\n"
            + "\n".join(indent([*launch.setup, call], self.unit))
            + "\n}\n"
        )
        prefix = "\n".join(head) + "\n\n" + signature + brace
        suffix = "}\n\n" + host
        if rng.random() < 0.05:
            suffix = suffix.rstrip("\n")

        def text(lines: list[str]) -> str:
            return "\n" + "\n".join(indent(lines, self.unit)) + "\n"

        return Parts(text(hasty), prefix, text(better), suffix, self.kernel)

    def _title(self) -> str:
        what = ", ".join(name.replace("_", " ") for name in op_names(self.spec)[:4])
        return self.rng.choice(
            (
                f"{what} of a float tensor",
                f"Computes {what}.",
                what,
                f"{what} for each {'row' if self.spec.row else 'element'}",
            )
        )


def _settled(names: Names, text: str) -> Names:
    """Names that the existing body does not show take their usual form: the better body has no hidden choice."""
    shown = set(re.findall(r"\w+", text)) | {
        names.x,
        names.out,
        names.n,
        names.rows,
        names.cols,
        *names.pointers.values(),
    }

    def settle(name: str, usual: str) -> str:
        return name if name in shown or usual in shown else usual

    return replace(
        names,
        v=settle(names.v, "v"),
        tid=settle(names.tid, "tid"),
        shared=settle(names.shared, "shared"),
        stats={stat: settle(name, stat) for stat, name in names.stats.items()},
    )


def _renamed(spec: Spec, rng: random.Random) -> Spec:
    """Operands under names that do not meet the C names of the file."""
    clash = set(_X + _OUT + _N + _ROWS + _COLS + _I + _ROW + _COL) | {"t", "v", "w", "u", "z", "s"}
    fresh = iter(("extra", "other", "aux", "rhs", "vec", "p1", "p2", "p3"))
    mapping = {o.name: (o.name if o.name not in clash else next(fresh)) for o in spec.operands}

    def fix(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(replace(o, name=mapping[o.name]) for o in operands)

    return replace(
        spec,
        before=tuple(replace(s, operands=fix(s.operands)) for s in spec.before),
        row=replace(spec.row, affine=fix(spec.row.affine)) if spec.row else None,
        after=tuple(replace(s, operands=fix(s.operands)) for s in spec.after),
    )


def _literal_bounds(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Clamps with literal bounds: with any floats for bounds (lower > upper) the ways to write one would differ."""
    return tuple(
        replace(s, scalars=tuple(Scalar(c.value) for c in s.scalars)) if s.op == "clamp" else s for s in steps
    )


def kernel_body(spec: Spec, rng: random.Random) -> Parts | None:
    """A `.cu` file with its existing body as the reference, or None where the operator has no such form."""
    if spec.strided or (spec.row and (spec.row.definition.special or spec.row.op == "prod")):
        return None
    spec = replace(spec, before=_literal_bounds(spec.before), after=_literal_bounds(spec.after))
    return KernelFileWriter(_renamed(spec, rng), rng).write()
