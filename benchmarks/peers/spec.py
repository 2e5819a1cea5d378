"""The specification of a job that the harness passes to a contender on its command line."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

from .workload import Data, Workload, load_data


@dataclass(frozen=True)
class Spec:
    workload: Workload
    folder: str  # of the data, and for what a contender leaves behind
    setting: dict[str, Any]

    def to_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argv(cls) -> Spec:
        return cls.from_argument(sys.argv[1])

    @classmethod
    def from_argument(cls, text: str) -> Spec:
        values = json.loads(text)
        workload = values["workload"]
        return cls(Workload(**workload | {"shape": tuple(workload["shape"])}), values["folder"], values["setting"])

    def data(self) -> Data:
        return load_data(self.folder)
