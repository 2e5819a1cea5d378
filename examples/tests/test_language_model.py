"""The language model example: with ASD the client learns its chapter and forgets less of the others."""

from __future__ import annotations

import re

from venvs import EXAMPLES, install


def test_language_model() -> None:
    text = install(EXAMPLES / "language_model").run("python", "train.py")
    found = {
        name: (float(own), float(others))
        for name, own, others in re.findall(r"^(.+): own chapter ([\d.]+), the others ([\d.]+)$", text, re.MULTILINE)
    }
    assert list(found) == ["global model", "cross-entropy", "cross-entropy + ASD"], text
    (own, _), (own_ce, others_ce), (own_asd, others_asd) = found.values()
    assert own_ce < own - 0.3, text
    assert own_asd < own - 0.3, text
    assert others_asd < others_ce, text
