"""Builds the kernels: fedasd_fast._C for the torch that is here, or fedasd_fast._stable for every torch since 2.10.
Everything static is in pyproject.toml.

Environment: FEDASD_BUILD=_C, _stable or both says which (else _C, but _stable where pip fetched a torch for the build
alone).  FEDASD_FORCE_CPU=1 leaves CUDA out; FORCE_CUDA=1 or TORCH_CUDA_ARCH_LIST puts it in (without them: where
torch, the toolkit and a visible GPU have it).  TORCH_CUDA_ARCH_LIST says for which architectures (else: the visible
GPUs', or all of ARCHITECTURES that nvcc knows); MAX_JOBS limits parallel compilers; DEBUG=1 builds with -O0 -g.
FEDASD_NO_EXTENSION=1 installs the pure-Python package (the reference implementation), as without a compiler.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import setuptools

if int(setuptools.__version__.split(".")[0]) < 77:  # older ones do not understand the licence in pyproject.toml
    raise SystemExit(f"setuptools {setuptools.__version__} is too old: pip install --upgrade 'setuptools>=77'")

import torch
from setuptools import setup


def find_toolkit() -> None:
    """torch takes the folder above nvcc's for the toolkit, also where nvcc is a script in /usr/local/bin: ask nvcc."""
    nvcc = shutil.which("nvcc")
    if not nvcc or os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"):
        return
    said = subprocess.run([nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True).stderr
    if top := re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE):
        os.environ["CUDA_HOME"] = str(Path(top[1]).resolve())


find_toolkit()  # before torch looks for it, in the next import
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension, include_paths  # noqa: E402

ROOT = Path(__file__).parent
ARCHITECTURES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")  # as in the Makefile


def flag(name: str) -> bool:
    return os.environ.get(name, "0").lower() not in ("", "0", "false", "no", "off")


def sources(*patterns: str) -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for pattern in patterns for p in ROOT.glob(pattern))


def use_cuda() -> bool:
    if flag("FEDASD_FORCE_CPU"):
        return False
    wanted = flag("FORCE_CUDA") or bool(os.environ.get("TORCH_CUDA_ARCH_LIST"))
    if wanted and torch.version.cuda is None:
        raise SystemExit(
            f"CUDA was asked for, but torch {torch.__version__} is a CPU build; install a CUDA build of torch"
        )
    if wanted and CUDA_HOME is None:
        raise SystemExit("CUDA was asked for, but no toolkit was found; install one with nvcc, or set CUDA_HOME")
    # Not because nvcc is there: all architectures take most of an hour.
    return wanted or (torch.version.cuda is not None and CUDA_HOME is not None and torch.cuda.is_available())


def compiler() -> str | None:
    """The C++ compiler that torch's build will call, or None where there is none."""
    named = os.environ.get("CXX") or "c++"
    found = shutil.which(named)
    if not found and "CXX" in os.environ and len(shlex.split(named)) > 1:  # torch would call the first word alone
        raise SystemExit(
            f"CXX = {named!r}; expected one program without arguments: for ccache put its folder of compilers, often "
            "/usr/lib/ccache, in front of PATH, and for options set CXXFLAGS"
        )
    if not found and os.environ.get("CXX"):
        raise SystemExit(f"CXX = {named!r} was not found; install it, or unset CXX")
    return found


def has_openmp_of_torch(cxx: str) -> bool:
    """gcc's OpenMP is the one in torch's Linux builds; clang's calls another library."""
    macros = subprocess.run([cxx, "-dM", "-E", "-x", "c++", os.devnull], capture_output=True, text=True).stdout
    return "__GNUC__" in macros and "__clang__" not in macros


def architectures() -> str:
    """What the kernels are compiled for; torch's build reads it from the environment."""
    visible = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    found = ";".join(f"{major}.{minor}" for major, minor in sorted(visible))
    if not found:  # all that this toolkit knows, and PTX for what comes after
        nvcc = Path(CUDA_HOME, "bin", "nvcc")
        known = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout.split()
        found = ";".join(a for a in ARCHITECTURES if "compute_" + a.replace(".", "") in known) + "+PTX"
    return re.sub("[ ,]+", ";", os.environ.setdefault("TORCH_CUDA_ARCH_LIST", found))


def compile_flags() -> list[str]:
    flags = ["-Wall", "-Wextra", "-Wno-psabi"]
    flags.append("-fno-math-errno")  # else a loop that takes square roots is not vectorised
    flags += ["-O0", "-g"] if flag("DEBUG") else ["-O3", "-g0"]
    return flags + [f"-isystem{path}" for path in include_paths()]  # warnings are about our code only


def extension(cxx: str) -> CppExtension:
    """fedasd_fast._C, for the torch that is here."""
    flags = compile_flags()
    # -fopenmp only when compiling: at::parallel_for then runs on the OpenMP library torch has already
    # loaded.  Linking another one would give two thread pools that fight for the cores.
    if has_openmp_of_torch(cxx):
        flags.append("-fopenmp")
    common = {
        "name": "fedasd_fast._C",
        "sources": [s for s in sources("csrc/cpu/*.cpp", "csrc/torch/*.cpp") if Path(s).name != "cuda.cpp"],
        "extra_compile_args": {"cxx": flags},
    }
    if not use_cuda():
        return CppExtension(**common)
    common["sources"] += sources("csrc/cuda/*.cu", "csrc/torch/cuda.cpp")
    flags.append(f'-DFEDASD_CUDA_ARCHITECTURES="{architectures()}"')
    common["extra_compile_args"]["nvcc"] = ["-O3"]
    return CUDAExtension(**common)


def stable_extension() -> CppExtension:
    """fedasd_fast._stable: CPU kernels on LibTorch's stable ABI, for every torch since 2.10 and Python since 3.10."""
    shared = [f"csrc/torch/{name}.cpp" for name in ("checks", "problem", "update", "chain", "cpu")]
    built = CppExtension(
        name="fedasd_fast._stable",
        sources=sources("csrc/cpu/*.cpp", "csrc/stable/*.cpp") + shared,
        include_dirs=[str(ROOT / "csrc/stable/include")],  # before torch's: it stands in for ATen
        define_macros=[("TORCH_TARGET_VERSION", "0x020A000000000000"), ("Py_LIMITED_API", "0x030A0000")],
        # Hidden: the names of what stands in for ATen are also in torch's libraries.
        extra_compile_args={"cxx": [*compile_flags(), "-fvisibility=hidden"]},
        py_limited_api=True,
    )
    built.libraries = ["torch_cpu"]  # which has all of the stable ABI
    return built


def wanted_builds() -> list[str]:
    """_C, _stable or both."""
    named = os.environ.get("FEDASD_BUILD")
    if named not in (None, "", "_C", "_stable", "both"):
        raise SystemExit(f"FEDASD_BUILD = {named!r}; expected _C, _stable or both")
    if not named:
        # A torch that was fetched for the build alone, by pip, build or uv, need not be the one that will run.
        fetched = re.search(r"[/\\](pip-build-env-|build-env-|builds-v0[/\\])", torch.__file__)
        named = "_stable" if fetched and not use_cuda() else "_C"
    return ["_C", "_stable"] if named == "both" else [named]


class Build(BuildExtension):
    """Leaves the torch version beside _C, to be read before it is loaded."""

    def finalize_options(self):
        super().finalize_options()
        # ninja does not look at torch's headers, which are system headers: objects of another torch would be linked.
        self.build_temp = str(Path(self.build_temp, f"torch-{torch.__version__}"))

    def build_extension(self, ext):
        common = self.build_temp
        self.build_temp = str(Path(common, ext.name))  # the two builds compile the same sources in different ways
        super().build_extension(ext)
        self.build_temp = common
        self.write_torch_version(ext)

    def copy_extensions_to_source(self):
        super().copy_extensions_to_source()
        for ext in self.extensions:
            self.write_torch_version(ext)

    def write_torch_version(self, ext):
        if ext.name == "fedasd_fast._C":
            library = Path(self.get_ext_fullpath(ext.name))
            (library.parent / "_built_for.txt").write_text(torch.__version__ + "\n")


def main() -> None:
    if flag("FEDASD_NO_EXTENSION"):
        print("fedasd_fast: FEDASD_NO_EXTENSION is set, the PyTorch reference is installed without compiled kernels")
        return setup()
    cxx = compiler()
    if cxx is None:
        if flag("FORCE_CUDA"):
            raise SystemExit("CUDA was asked for, but there is no C++ compiler; install g++ or clang++, or set CXX")
        print("fedasd_fast: WARNING: no C++ compiler (c++, or CXX); the slower PyTorch reference is installed instead")
        return setup()
    builds = wanted_builds()
    extensions = []
    if "_C" in builds:
        extensions.append(extension(cxx))
        devices = "the CPU and CUDA" if "nvcc" in extensions[0].extra_compile_args else "the CPU"
        print(f"fedasd_fast: kernels for {devices}, compiled by {cxx} for torch {torch.__version__}")
    if "_stable" in builds:
        extensions.append(stable_extension())
        print(f"fedasd_fast: kernels for the CPU, compiled by {cxx} for every torch since 2.10 (stable ABI)")
    # A wheel with _C works with one release of torch, which is its build tag; one without, with every Python too.
    release = ".".join(torch.__version__.split(".")[:2])
    tag = {"build_number": release} if "_C" in builds else {"py_limited_api": "cp310"}
    setup(ext_modules=extensions, cmdclass={"build_ext": Build}, options={"bdist_wheel": tag})


main()
