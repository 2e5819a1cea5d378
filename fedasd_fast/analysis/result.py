"""The interface of analysis results."""

from __future__ import annotations

from typing import Any, Protocol


class AnalysisResult(Protocol):
    """str() of it is printed, to_dict() is saved as JSON."""

    def to_dict(self) -> dict[str, Any]: ...
