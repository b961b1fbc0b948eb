"""Writes `.cu` files: a kernel, its raw-pointer wrapper and what stands around them, with a hole at the body."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from dice_training.cuke.better_bodies import BetterBody
from dice_training.cuke.bodies import HelperStep, Layout, Schedule
from dice_training.cuke.device import expression_fields, indent
from dice_training.cuke.hasty_bodies import HastyBody
from dice_training.cuke.kernel_names import draw_names, renamed, settled
from dice_training.cuke.parts import Parts, op_names
from dice_training.cuke.spec import Scalar, Spec, Step

_HELPER_HEADS = (
    "__device__ __forceinline__ float",
    "__device__ inline float",
    "__device__ float",
    "static __device__ __forceinline__ float",
)


@dataclass(frozen=True)
class Launch:
    grid: str
    block: str
    shared: str
    """Dynamic shared bytes, empty for none."""
    setup: tuple[str, ...]


class KernelFileWriter:
    """``function``: the host function's name where the rest of a module's file has set it already."""

    def __init__(
        self,
        spec: Spec,
        rng: random.Random,
        torch_host: bool,
        function: str | None = None,
        scalar: str = "float",
    ) -> None:
        self.scalar_type = scalar
        self.rng = rng
        self.vectors = any(o.layout == "vec" for o in spec.operands)
        self.torch_host = torch_host
        self.inplace = not torch_host and not spec.row and rng.random() < 0.2
        self.out_first = not self.inplace and rng.random() < 0.1
        self.scalars_first = rng.random() < 0.15
        self.helper: list[str] = []
        self.spec = self._with_helper(spec) if rng.random() < 0.25 else spec
        self.unit = rng.choice(("    ", "    ", "  "))
        self.names = draw_names(spec, rng, self.inplace, spec.x if function else None)
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
        if function:
            self.kernel, self.wrapper = f"{function}_kernel", function
        self.restrict = rng.random() < 0.4

    def _with_helper(self, spec: Spec) -> Spec:
        """Gives one step a device function of its own, where a step is worth it."""
        rng = self.rng
        for k, step in enumerate(spec.before):
            op = step.definition
            if (
                op.operands
                or any(s.name for s in step.scalars)
                or op.cuda.count("{v}") < 2
                or type(step) is HelperStep
            ):
                continue
            name = rng.choice((op.name, f"{op.name}_f", f"apply_{op.name}", f"{op.name}f", f"{op.name}_op"))
            if name == op.name and name in ("round", "floor", "ceil", "trunc", "sign"):
                name += "_op"
            arg = rng.choice(("x", "v", "a", "val"))
            expression = rng.choice((op.cuda, *op.hasty)).format(v=arg, **expression_fields(step, str))
            unit = rng.choice(("    ", "  "))
            head = f"{rng.choice(_HELPER_HEADS)} {name}(float {arg}) {{"
            self.helper = [head, f"{unit}return {expression};", "}"]
            helped = HelperStep(step.op, step.scalars, step.operands, helper=name)
            return replace(spec, before=(*spec.before[:k], helped, *spec.before[k + 1 :]))
        return spec

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
        scalars = [f"float {s.name}" for s in self.spec.scalars]
        args = [*scalars, *args] if self.scalars_first else [*args, *scalars]
        return args + [f"int {s}" for s in sizes]

    def _arguments(self, sizes: list[str]) -> list[str]:
        n = self.names
        args = ([] if self.inplace else [n.x]) + [n.pointers[o.name] for o in self.spec.operands]
        args = [n.out, *args] if self.out_first else [*args, n.out]
        scalars = [str(s.name) for s in self.spec.scalars]
        return ([*scalars, *args] if self.scalars_first else [*args, *scalars]) + sizes

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
        kernel_sizes, wrapper_sizes = self._sizes()
        launch = self._launch()
        hasty = HastyBody(self.spec, n, self.layout, rng).write()
        better = BetterBody(self.spec, settled(n, "\n".join(hasty)), self.layout).write()
        comment = f"// {self._title()}\n" if rng.random() < 0.2 else ""
        arguments = ", ".join(self._params(kernel_sizes, self.restrict))
        brace = "\n{" if rng.random() < 0.15 else " {"
        prefix = f"{self._head(hasty)}\n\n{comment}__global__ void {self.kernel}({arguments}){brace}"
        if self.torch_host:
            host = self._torch_host(launch, kernel_sizes)
        else:
            host = self._host(launch, kernel_sizes, wrapper_sizes)
        suffix = "}\n\n" + host.replace(" {\n", brace + "\n", 1)
        if rng.random() < 0.05:
            suffix = suffix.rstrip("\n")

        def text(lines: list[str]) -> str:
            return "\n" + "\n".join(indent(lines, self.unit)) + "\n"

        return Parts(text(hasty), prefix, text(better), suffix, self.kernel)

    def _head(self, body: list[str]) -> str:
        rng = self.rng
        lines = ["\n#include <torch/extension.h>"] if self.torch_host else []
        if not self.torch_host or rng.random() < 0.6:
            lines.append("#include <cuda_runtime.h>")
        joined = "\n".join(body)
        if "FLT_MAX" in joined:
            lines.append("#include <cfloat>")
        if "INFINITY" in joined or rng.random() < 0.3:
            lines.append(rng.choice(("#include <math.h>", "#include <cmath>")))
        if not self.torch_host and rng.random() < 0.3:
            lines.insert(0, f"// {self._title()}")
        if self.macro:
            lines += ["", self.macro.format(t=self.threads)]
        if self.helper:
            lines += ["", *self.helper]
        return "\n".join(lines)

    def _call(self, launch: Launch, arguments: list[str], stream: bool) -> str:
        config = [launch.grid, launch.block]
        if launch.shared or stream:
            config.append(launch.shared or "0")
        if stream:
            config.append("stream")
        return f"{self.kernel}<<<{', '.join(config)}>>>({', '.join(arguments)});"

    def _host(self, launch: Launch, kernel_sizes: list[str], wrapper_sizes: list[str]) -> str:
        """The wrapper of raw pointers."""
        rng = self.rng
        stream = rng.random() < 0.4
        params = self._params(wrapper_sizes, False) + (["cudaStream_t stream"] if stream else [])
        call = self._call(launch, self._arguments(kernel_sizes), stream)
        export = 'extern "C" ' if rng.random() < 0.15 else ""
        note = rng.choice(("", "", f"// Launches {self.kernel}.\n", "// Host wrapper.\n"))
        body = "\n".join(indent([*launch.setup, call], self.unit))
        return f"{note}{export}void {self.wrapper}({', '.join(params)}) {{\n{body}\n}}\n"

    def _torch_host(self, launch: Launch, kernel_sizes: list[str]) -> str:
        """A host function over tensors, as it stands in the source string of a load_inline file."""
        n, spec = self.names, self.spec
        tensors = [n.x] + [n.pointers[o.name] for o in spec.operands]
        params = [f"torch::Tensor {t}" for t in tensors] + [
            f"{self.scalar_type} {s.name}" for s in spec.scalars
        ]
        made = (
            f"torch::empty({{{n.x}.size(0)}}, {n.x}.options())"
            if spec.reduces
            else f"torch::empty_like({n.x})"
        )
        lines = [f"auto {n.out} = {made};"]
        if spec.row or self.vectors or self.schedule == "grid2d":
            lines += [f"int {n.rows} = {n.x}.size(0);", f"int {n.cols} = {n.x}.size(1);"]
        else:
            lines.append(f"int {n.n} = {n.x}.numel();")
        pointers = {t: f"{t}.data_ptr<float>()" for t in (*tensors, n.out)}
        arguments = [pointers.get(a, a) for a in self._arguments(kernel_sizes)]
        lines += [*launch.setup, self._call(launch, arguments, False), f"return {n.out};"]
        body = "\n".join(indent(lines, self.unit))
        return f"torch::Tensor {self.wrapper}({', '.join(params)}) {{\n{body}\n}}\n"

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


def _literal_bounds(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Clamps with literal bounds: with any floats for bounds (lower > upper) the ways to write one would differ."""
    return tuple(
        replace(s, scalars=tuple(Scalar(c.value) for c in s.scalars)) if s.op == "clamp" else s for s in steps
    )


def kernel_body(spec: Spec, rng: random.Random, torch_host: bool = False) -> Parts | None:
    """A `.cu` file with its existing body as the reference, or None where the operator has no such form.

    ``torch_host``: the host function takes tensors, as in the CUDA source of a load_inline file.
    """
    if spec.strided or (spec.row and (spec.row.definition.special or spec.row.op == "prod")):
        return None
    if torch_host and not _flat(spec):
        return None
    spec = replace(spec, before=_literal_bounds(spec.before), after=_literal_bounds(spec.after))
    scalar = rng.choice(("float", "float", "double"))
    return KernelFileWriter(renamed(spec), rng, torch_host, scalar=scalar).write()


def _flat(spec: Spec) -> bool:
    """Whether the hasty host function over tensors, which knows rows and columns only, can serve."""
    return len(spec.shape) == 2 and not (spec.row and spec.row.keepdim)


def existing_source(spec: Spec, rng: random.Random, function: str, scalar: str) -> str | None:
    """A hasty CUDA source with this host function, as it may stand in a file; None where there is no such form."""
    if spec.strided or not _flat(spec) or (spec.row and spec.row.definition.special):
        return None
    parts = KernelFileWriter(spec, rng, True, function, scalar).write()
    source = parts.prefix + parts.reference + parts.suffix
    return source if source.endswith("\n") else source + "\n"
