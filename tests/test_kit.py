"""What contributors rely on: make targets and their list, workflows, hooks, metadata, links."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import fedasd_fast as fa

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DOCUMENTS = ["CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "README.md", "examples/README.md"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Also where make runs the tests: its variables would make this one a sub-make, which prints its directory."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=clean, capture_output=True, text=True)


def targets_called(script: str) -> list[str]:
    """By a shell script: "make --silent test CXX=g++ && ls" gives ["test"]."""
    targets = []
    for command in re.split(r"&&|\|\||[;|\n]", script.replace("\\\n", " ")):
        words = shlex.split(command.partition(">")[0], comments=True)
        if words[:1] == ["make"]:
            targets += [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return targets


def targets_named(text: str) -> list[str]:
    """In a document: in `code` and in blocks of commands."""
    blocks = "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    scripts = re.findall(r"`(make [^`\n]+)`", text) + re.findall(r"^make .*", blocks, re.MULTILINE)
    return [target for script in scripts for target in targets_called(script)]


def pyproject(pattern: str) -> str:
    (found,) = re.findall(pattern, (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return str(found)


class TestMake:
    def test_every_target_is_listed_by_make_help(self) -> None:
        phony = {name for line in re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE) for name in line.split()}
        listed = dict(re.findall(r"^make ([a-z-]+) +(\S.*)$", make("help").stdout, re.MULTILINE))
        assert phony == make_targets() == set(listed)

    def test_make_alone_is_help(self) -> None:
        assert make().stdout == make("help").stdout != ""

    def test_test_files_named_in_the_makefile_exist(self) -> None:
        named = re.findall(r"tests/[\w/]+\.py", MAKEFILE)
        assert "tests/test_kit.py" in named
        assert [name for name in named if not (ROOT / name).is_file()] == []

    def test_targets_named_in_documents_exist(self) -> None:
        named = {}
        documents = [*DOCUMENTS, ".github/PULL_REQUEST_TEMPLATE.md", *FORMS, *(ROOT / "docs").rglob("*.md")]
        for document in documents:
            named |= dict.fromkeys(targets_named((ROOT / document).read_text()), document)
        assert {"test", "lint", "cuda-extension"} <= set(named)
        assert {target: document for target, document in named.items() if target not in make_targets()} == {}


class TestWorkflows:
    def test_there_are_workflows_for_all_that_is_promised(self) -> None:
        assert {path.stem for path in WORKFLOWS} >= {"lint", "tests", "cuda", "docs", "gpu", "release"}

    @pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
    def test_workflow(self, path: Path) -> None:
        """Its structure, and that what it runs are make targets, which can be tried without GitHub."""
        workflow = yaml.safe_load(path.read_text())
        assert workflow["name"] == path.stem
        assert workflow[True]  # "on", as YAML 1.1 reads it
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            if "uses" in job:
                assert (ROOT / job["uses"]).is_file()
                continue
            assert job["runs-on"]
            assert job["timeout-minutes"]
            assert all(("uses" in step) != ("run" in step) for step in job["steps"])
            if not any("run" in step for step in job["steps"]):
                continue  # actions alone: cibuildwheel reads pyproject.toml
            called = [target for step in job["steps"] for target in targets_called(step.get("run", ""))]
            assert called, "no make target"
            assert set(called) <= make_targets()

    def test_pull_requests_never_reach_our_own_machines_nor_get_a_token_that_writes(self) -> None:
        for path in WORKFLOWS:
            workflow = yaml.safe_load(path.read_text())
            assert "pull_request_target" not in workflow[True]
            if "pull_request" in workflow[True]:
                jobs = workflow["jobs"].values()
                assert not any("self-hosted" in str(job.get("runs-on")) or "permissions" in job for job in jobs), path

    def test_matrix_covers_the_supported_versions(self) -> None:
        linux = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["linux"]["strategy"][
            "matrix"
        ]
        versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
        assert linux["python"] == versions
        assert versions[0] == pyproject(r'^requires-python = ">=(.*)"')
        assert all((ROOT / name).is_file() for name in linux["constraints"])
        oldest = re.findall(r"^torch==(\S+)", (ROOT / "constraints-oldest.txt").read_text(), re.MULTILINE)
        assert oldest == [pyproject(r'^dependencies = .*"torch>=([\d.]+)"') + ".0"]

    def test_actionlint(self) -> None:
        tool = shutil.which("actionlint", path=str(ROOT / ".venv" / "bin")) or shutil.which("actionlint")
        if tool is None:
            pytest.skip("no actionlint; the structure is tested above")
        done = subprocess.run([tool, *map(str, WORKFLOWS)], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


class TestFiles:
    def test_hooks_are_make_targets(self) -> None:
        (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
        assert repository["repo"] == "local"
        called = [target for hook in repository["hooks"] for target in targets_called(hook["entry"])]
        assert len(called) == len(repository["hooks"])
        assert set(called) <= make_targets()

    @pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
    def test_issue_form(self, path: Path) -> None:
        form = yaml.safe_load(path.read_text())
        if path.stem == "config":
            assert set(form) <= {"blank_issues_enabled", "contact_links"}
            return
        assert form["name"]
        assert form["description"]
        questions = [part for part in form["body"] if part["type"] != "markdown"]
        ids = [part["id"] for part in questions]
        assert len(set(ids)) == len(ids)
        assert all(part["attributes"]["label"] for part in questions)
        assert {part["type"] for part in questions} <= {"textarea", "input", "dropdown", "checkboxes"}

    def test_one_version_everywhere(self) -> None:
        citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
        releases = re.findall(
            r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
        )
        assert fa.__version__ == pyproject(r'^version = "(.*)"') == citation["version"] == releases[0][0]
        assert citation["date-released"] == releases[0][1]
        assert [date for _, date in releases] == sorted((date for _, date in releases), reverse=True)

    def test_citation_names_paper_and_software(self) -> None:
        citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
        assert citation["cff-version"] == "1.2.0"
        assert citation["type"] == "software"
        paper = citation["preferred-citation"]
        readme = " ".join((ROOT / "README.md").read_text().split())
        assert paper["title"] in readme
        assert paper["journal"] in readme
        assert all(author["family-names"] in readme for author in paper["authors"])

    def test_release_notes_are_the_section_of_the_version(self) -> None:
        done = make("-s", "release-notes", f"TAG=v{fa.__version__}")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"## [{fa.__version__}]")
        assert len(re.findall(r"^## ", done.stdout, re.MULTILINE)) == 1
        assert make("-s", "release-notes", "TAG=v0.0.0").returncode != 0
        assert make("-s", "release-notes", "VERSION=0.0.0").returncode != 0

    def test_links_lead_somewhere(self) -> None:
        broken = [
            (name, link)
            for name in DOCUMENTS
            for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / name).read_text())
            if not link.startswith("https://") and not (ROOT / name).parent.joinpath(link).exists()
        ]
        assert not broken

    def test_readme_leads_to_the_documents_for_contributors(self) -> None:
        readme = (ROOT / "README.md").read_text()
        for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md"):
            assert f"]({name})" in readme
