"""The one-way flow of the package: no import cycle, no import upwards, no class name twice, and a light `import`."""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedasd_fast

ROOT = Path(fedasd_fast.__file__).parent
# What may import what: each layer only itself and those after it.
LAYERS = [
    {"cli", "__main__", "api"},
    {"report"},
    {"reproduce"},
    {"analysis"},
    {"simulation"},
    {"data", "models", "presets", "callbacks", "config", "preset_files", "settings"},
    {"algorithms"},
    {"loss"},
    {"kernels"},
    {"common", "_version"},
]
# Inside the simulator: rooms in the order of the flow, the last knows nothing of the others.
ROOMS = ["executors", "client", "aggregation", "distributed", "storage", "system", "devices"]


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("fedasd_fast", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str, *, deferred: bool) -> Iterator[tuple[str, int]]:
    """Modules of ours that this one imports, with the line; those under TYPE_CHECKING do not run and do not count.
    `deferred`: those inside functions, else those outside."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]

    def visit(node: ast.AST, in_function: bool) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.ImportFrom) and in_function == deferred:
                base = package[: len(package) - child.level + 1] if child.level else []
                module = ".".join([*base, *([child.module] if child.module else [])])
                for alias in child.names:
                    target = f"{module}.{alias.name}"
                    yield target if target in MODULES else module, child.lineno
            elif isinstance(child, ast.Import) and in_function == deferred:
                yield from ((alias.name, child.lineno) for alias in child.names)
            inside = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from visit(child, inside)

    for target, line in visit(ast.parse(path.read_text()), False):
        if target in MODULES and target != name:
            yield target, line


def test_no_import_cycle_not_even_hidden_in_a_function() -> None:
    graph = {
        name: {target for deferred in (False, True) for target, _ in imports(name, deferred=deferred)}
        for name in MODULES
    }
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which shows the cycle


def layer(name: str) -> int:
    part = name.split(".")[1]
    return next(number for number, parts in enumerate(LAYERS) if part in parts)


def test_imports_point_one_way() -> None:
    upwards = [
        f"{MODULES[name].relative_to(ROOT)}:{line} imports {target}"
        for name in MODULES
        if name != "fedasd_fast"
        for deferred in (False, True)
        for target, line in imports(name, deferred=deferred)
        if target != "fedasd_fast" and layer(target) < layer(name)
    ]
    assert upwards == []


def test_rooms_of_the_simulator_point_one_way() -> None:
    def room(name: str) -> int | None:
        parts = name.split(".")
        return ROOMS.index(parts[2]) if parts[1:2] == ["simulation"] and len(parts) > 3 else None

    upwards = [
        f"{name} imports {target}"
        for name in MODULES
        if (here := room(name)) is not None
        for target, _ in imports(name, deferred=False)
        if (there := room(target)) is not None and there < here
    ]
    assert upwards == []


def test_imports_are_deferred_on_the_command_line_only() -> None:
    """There they keep `fedasd --help` quick; elsewhere they would only hide a cycle."""
    hidden = [
        f"{MODULES[name].relative_to(ROOT)}:{line} imports {target}"
        for name in MODULES
        if name.split(".")[1:2] != ["cli"]
        for target, line in imports(name, deferred=True)
    ]
    assert hidden == []


def test_no_class_name_twice() -> None:
    names = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_module_says_what_it_is() -> None:
    silent = [name for name, path in MODULES.items() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def loaded_by(statement: str) -> set[str]:
    script = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        ("import fedasd_fast", 2),
        ("from fedasd_fast import ASDLoss, TeacherCache, asd_loss_and_grad, label_prior, reference", 24),
    ],
)
def test_a_loss_user_loads_neither_simulator_nor_yaml_nor_rich(statement: str, most: int) -> None:
    loaded = loaded_by(statement)
    ours = {name for name in loaded if name.split(".")[0] == "fedasd_fast"}
    assert len(ours) <= most
    assert not {name.split(".")[1] for name in ours if "." in name} & {"simulation", "data", "config", "report"}
    assert not loaded & {"yaml", "rich", "matplotlib"}


def test_every_public_name_is_there() -> None:
    assert set(fedasd_fast.__all__) <= {*dir(fedasd_fast)}
    for name in fedasd_fast.__all__:
        assert getattr(fedasd_fast, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        fedasd_fast.simulat  # noqa: B018
