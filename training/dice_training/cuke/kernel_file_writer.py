"""Writes `.cu` files: a kernel, its raw-pointer wrapper and what stands around them, with a hole at the body."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from dice_training.cuke.better_bodies import BetterBody
from dice_training.cuke.bodies import HelperStep, Layout, Names, Schedule
from dice_training.cuke.device import expression_fields, indent, literal
from dice_training.cuke.hasty_bodies import HastyBody
from dice_training.cuke.kernel_file_parts import draw_surroundings, open_below
from dice_training.cuke.kernel_names import draw_names, settled
from dice_training.cuke.parts import Parts, op_names
from dice_training.cuke.spec import Scalar, Spec, Step
from dice_training.cuke.words import NamePool, fresh_name

_HELPER_HEADS = (
    "__device__ __forceinline__ float",
    "__device__ inline float",
    "__device__ float",
    "static __device__ __forceinline__ float",
)


_SIZE_TYPES = ("int", "int", "int", "int", "int", "const int", "size_t", "unsigned int", "unsigned", "long")
_THREAD_NAMES = ("threads", "block", "block_size", "nthreads", "tpb", "bs")


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
        self.helper: list[str] = []
        self.constants: dict[str, str] = {}
        spec = self._with_constants(spec) if rng.random() < 0.3 else spec
        self.spec = self._with_helper(spec) if rng.random() < 0.25 else spec
        self.unit = rng.choice(("    ", "    ", "    ", "  ", "\t"))
        self.names = draw_names(spec, rng, self.inplace, spec.x if function else None)
        self.schedule = self._schedule()
        self.threads = self._block_size()
        self.dynamic = self.schedule in ("block_tree", "warp_row") and rng.random() < 0.3
        self.taken = {*self.constants, *_all_names(self.names), *(str(c.name) for c in self.spec.scalars)}
        self.around = draw_surroundings(rng, self.threads, self.taken, torch_host)
        self.layout = Layout(self.schedule, self.dynamic, self._threads_text(), unit=self.unit)
        stem = "_".join(op_names(spec)[:2])
        usual = (
            stem + "_kernel",
            stem + "_kernel",
            "k_" + stem,
            stem + "_kern",
            "fused_kernel",
            stem + "_rows" if spec.row else stem + "_elementwise",
        )
        pool = NamePool(rng, self.taken)
        self.kernel = pool.take(usual)
        self.wrapper = pool.take(
            (
                f"launch_{stem}",
                f"run_{stem}",
                f"do_{stem}",
                f"{stem}_launch",
                f"{stem}_f32",
                f"{stem}_gpu",
                f"{stem}_cuda",
            )
        )
        if function:
            self.wrapper = function
            self.kernel = (
                f"{function}_kernel" if rng.random() < 0.5 or self.kernel == function else self.kernel
            )
        self.restrict = rng.random() < 0.4
        self.size_type = rng.choice(_SIZE_TYPES)
        self.kinds = ["tensors", "out", "scalars", "sizes"]
        if rng.random() < 0.3:
            self._shuffle_kinds()
        self.separate = rng.random() < 0.1
        """Sizes of the kernel have their own order."""

    def _shuffle_kinds(self) -> None:
        self.rng.shuffle(self.kinds)
        if not self.inplace and self.rng.random() < 0.5:
            self.kinds = [k for k in self.kinds if k != "out"]
            self.kinds.insert(self.kinds.index("tensors") + 1, "out")

    def _with_constants(self, spec: Spec) -> Spec:
        """Gives a literal or two a name at the head of the file."""
        rng = self.rng
        taken = {o.name for o in spec.operands} | {c.name or "" for c in spec.scalars} | {"n", "x", "y"}

        def named(steps: tuple[Step, ...]) -> tuple[Step, ...]:
            made = []
            for step in steps:
                scalars = []
                for scalar in step.scalars:
                    if scalar.name is None and scalar.text is None and rng.random() < 0.5:
                        stem = fresh_name(rng, taken)
                        name = rng.choice((stem.upper(), stem.upper(), f"k{stem.capitalize()}"))
                        if name not in taken and len(stem) > 1:
                            taken.add(name)
                            self.constants[name] = literal(scalar.value)
                            scalar = Scalar(scalar.value, None, None, name)
                    scalars.append(scalar)
                made.append(replace(step, scalars=tuple(scalars)))
            return tuple(made)

        return replace(spec, before=named(spec.before), after=named(spec.after))

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
            if rng.random() < 0.4:
                name = fresh_name(rng, {o.name for o in spec.operands})
            expression = rng.choice((op.cuda, *op.hasty)).format(v=arg, **expression_fields(step, str))
            unit = rng.choice(("    ", "  "))
            head = f"{rng.choice(_HELPER_HEADS)} {name}(float {arg}) {{"
            self.helper = [head, f"{unit}return {expression};", "}"]
            if rng.random() < 0.3:
                self.helper = [f"{head} return {expression}; }}"]
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
        return self.around.block_name or self.threads

    def _ordered(self, groups: dict[str, list[str]]) -> list[str]:
        return [entry for kind in self.kinds for entry in groups[kind]]

    def _params(self, sizes: list[str], kernel: bool) -> list[str]:
        n = self.names
        q = " __restrict__ " if kernel and self.restrict else " "
        scalar = self.scalar_type if kernel else "float"
        groups = {
            "tensors": ([] if self.inplace else [f"const float*{q}{n.x}"])
            + [f"const float*{q}{n.pointers[o.name]}" for o in self.spec.operands],
            "out": [f"float*{q}{n.out}"],
            "scalars": [f"{scalar} {s.name}" for s in self.spec.scalars],
            "sizes": [f"{self.size_type} {s}" for s in sizes],
        }
        return self._ordered(groups)

    def _arguments(self, sizes: list[str]) -> list[str]:
        n = self.names
        groups = {
            "tensors": ([] if self.inplace else [n.x]) + [n.pointers[o.name] for o in self.spec.operands],
            "out": [n.out],
            "scalars": [str(s.name) for s in self.spec.scalars],
            "sizes": sizes,
        }
        return self._ordered(groups)

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
        if not self.around.block_name and rng.random() < 0.6:
            t = next(c for c in (*rng.sample(_THREAD_NAMES, 4), "num_threads_") if c not in self.taken)
            kind = rng.choice(("const int", "int", "dim3", "unsigned int", "constexpr int"))
            if kind == "dim3" and (self.dynamic or self.schedule in ("guard", "thread_row")):
                kind = "int"
            setup.append(f"dim3 {t}({self.threads});" if kind == "dim3" else f"{kind} {t} = {self.threads};")
        if self.schedule in ("guard", "thread_row"):
            work = n.n if self.schedule == "guard" else n.rows
            if self.schedule == "guard" and self.vectors:
                setup.append(f"{self.size_type} {n.n} = {n.rows} * {n.cols};")
            grid = f"({work} + {t} - 1) / {t}"
            if self.around.division:
                grid = f"{self.around.division}({work}, {t})"
            elif t.isdigit() and rng.random() < 0.5:
                grid = f"({work} + {int(t) - 1}) / {t}"
            if rng.random() < 0.6:
                name = rng.choice(
                    [b for b in ("blocks", "grid", "num_blocks", "nb") if b != t and b not in self.taken]
                )
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
        doubles = self.scalar_type == "double" and bool(self.spec.scalars)
        body = HastyBody(self.spec, n, self.layout, rng, self.taken, doubles).write()
        comment = f"// {self._title()}\n" if rng.random() < 0.2 else ""
        arguments = ", ".join(self._params(kernel_sizes, True))
        brace = "\n{" if rng.random() < 0.15 else " {"
        bounds = (
            f"__launch_bounds__({self._threads_text()}) "
            if self.around.launch_bounds and self.schedule != "grid2d"
            else ""
        )
        static = "static " if rng.random() < 0.05 else ""
        head = self._head(body)
        prefix = f"{head}\n\n{comment}{static}__global__ void {bounds}{self.kernel}({arguments}){brace}"
        plain = "\n".join(line.split("//")[0] for line in body if "/*" not in line)
        settled_names = settled(n, plain, f"{head}\n{arguments}")
        better = BetterBody(self.spec, settled_names, self.layout).write()
        if self.torch_host:
            host = self._torch_host(launch, kernel_sizes)
        else:
            host = self._host(launch, kernel_sizes, wrapper_sizes)
        spare = f"\n{self.around.spare}\n" if self.around.spare and not self.around.spare_first else ""
        suffix = "}\n" + spare + "\n" + host.replace(" {\n", brace + "\n", 1)
        if rng.random() < 0.05:
            suffix = suffix.rstrip("\n")

        def text(lines: list[str]) -> str:
            return "\n" + "\n".join(indent(lines, self.unit)) + "\n"

        existing = text(open_below(body) if brace == "\n{" and rng.random() < 0.7 else body)
        if rng.random() < 0.12:
            existing = existing.replace("for (", "for(").replace("if (", "if(").replace(") {", "){")
        if rng.random() < 0.15:
            prefix, existing, suffix = (
                part.replace("float* ", "float *") for part in (prefix, existing, suffix)
            )
        return Parts(existing, prefix, text(better), suffix, self.kernel)

    def _head(self, body: list[str]) -> str:
        rng, around = self.rng, self.around
        lines = ["#include <torch/extension.h>"] if self.torch_host else []
        if not self.torch_host or rng.random() < 0.6:
            lines.append("#include <cuda_runtime.h>")
        joined = "\n".join(body)
        if "FLT_MAX" in joined:
            lines.append("#include <cfloat>")
        if "INFINITY" in joined or rng.random() < 0.3:
            lines.append(rng.choice(("#include <math.h>", "#include <cmath>")))
        if rng.random() < 0.06:
            lines.append("#include <cstdio>")
        if not self.torch_host and rng.random() < 0.3:
            lines.insert(0, f"// {self._title()}")
        if self.torch_host:
            lines[0] = "\n" + lines[0]
        texts = []
        if self.constants:
            shape = rng.choice(
                (
                    "#define {n} {v}",
                    "constexpr float {n} = {v};",
                    "static const float {n} = {v};",
                    "__constant__ float {n} = {v};",
                )
            )
            if shape.startswith("__constant__"):
                shape = "constexpr float {n} = {v};"
            texts.append("\n".join(shape.format(n=n, v=v) for n, v in self.constants.items()))
        if around.block_line:
            texts.append(around.block_line)
        if around.division_line and self.schedule in ("guard", "thread_row"):
            texts.append(around.division_line)
        if self.helper:
            texts.append("\n".join(self.helper))
        if around.spare and around.spare_first:
            texts.insert(rng.randrange(len(texts) + 1), around.spare)
        for text in texts:
            lines += ["", text]
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
        params = self._params(wrapper_sizes, False)
        if stream:
            params.insert(0 if rng.random() < 0.1 else len(params), "cudaStream_t stream")
        call = self._call(launch, self._arguments(kernel_sizes), stream)
        export = 'extern "C" ' if rng.random() < 0.15 else ""
        note = rng.choice(("", "", f"// Launches {self.kernel}.\n", "// Host wrapper.\n"))
        after = (
            [rng.choice(("cudaGetLastError();", "cudaDeviceSynchronize();"))] if rng.random() < 0.12 else []
        )
        body = "\n".join(indent([*launch.setup, call, *after], self.unit))
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


def _all_names(names: Names) -> set[str]:
    fields = (names.x, names.out, names.n, names.rows, names.cols, names.i, names.row, names.col)
    return {*fields, names.tid, names.v, names.shared, *names.stats.values(), *names.pointers.values()}
