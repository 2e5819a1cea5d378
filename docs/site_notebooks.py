"""Shows the notebooks in docs/notebooks as pages of the site: text, code and the outputs that were saved."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

NOTEBOOKS = sorted((Path(__file__).parent / "notebooks").glob("*.ipynb"))


def on_config(config: Any) -> Any:
    if NOTEBOOKS:
        config.nav.insert(2, {"Notebooks": [f"notebooks/{path.stem}.md" for path in NOTEBOOKS]})
    return config


def on_files(files: Files, config: Any) -> Files:
    for path in NOTEBOOKS:
        markdown, images = converted(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=markdown))
        for name, image in images.items():
            files.append(File.generated(config, f"notebooks/{name}", content=image))
    return files


def converted(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Markdown, and the images that it shows by their file names."""
    parts: list[str] = []
    images: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source:
            parts.append(_block("python", source))
            for output in cell["outputs"]:
                data = output.get("data", {})
                if "image/png" in data:
                    image = f"{name}-{len(images) + 1}.png"
                    images[image] = base64.b64decode("".join(data["image/png"]))
                    parts.append(f"![Output of the code above]({image})")
                elif text := "".join(output.get("text", data.get("text/plain", ""))):
                    parts.append(_block("text", text))
    parts.insert(1, f'A notebook: <a href="{name}.ipynb" download>download it</a>.')
    return "\n\n".join(parts), images


def _block(language: str, text: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
