"""YAML of bounded size: a text of a few lines can stand for billions of values, or for one that contains itself.

An alias (`*name`) repeats what its anchor names, so nested aliases multiply.  The text, and the number and depth of the
values that it stands for, are counted before any of them is built.
"""

from __future__ import annotations

from typing import Any

import yaml

from .schema import ConfigError

MAX_BYTES = 1 << 18
MAX_VALUES = 10_000  # with aliases written out
MAX_DEPTH = 40


def load(text: str | bytes, where: str) -> Any:
    """The value of a YAML text; errors call it `where` and are one line."""
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{where} has more than {MAX_BYTES:,} characters; settings do not need that many")
    try:
        loader = yaml.SafeLoader(text.decode() if isinstance(text, bytes) else text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            values, depth = _extent(node, {})
            if values > MAX_VALUES or depth > MAX_DEPTH:
                raise ConfigError(
                    f"{where} stands for more than {MAX_VALUES:,} values, or for some nested deeper than {MAX_DEPTH}, "
                    "with aliases written out"
                )
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not valid YAML: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ConfigError(f"{where} is not valid YAML: it is nested too deeply, or contains itself") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: 2024-13-45, or a number of thousands of digits
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None


def _extent(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The number of values, and their depth.  A node that contains itself ends in a RecursionError."""
    if id(node) not in known:
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inner = node.value
        elif isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        extents = [_extent(part, known) for part in inner]
        known[id(node)] = 1 + sum(size for size, _ in extents), 1 + max((depth for _, depth in extents), default=0)
    return known[id(node)]
