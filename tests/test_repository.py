"""What runs on every commit and push exists, and is what a developer runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))


def load(path: str) -> Any:
    return YAML(typ="safe").load((ROOT / path).read_text())


def steps() -> Iterator[dict[str, Any]]:
    for workflow in (ROOT / ".github" / "workflows").iterdir():
        for job in load(str(workflow.relative_to(ROOT)))["jobs"].values():
            yield from job["steps"]


def hooks() -> list[dict[str, Any]]:
    return [hook for repo in load(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]


COMMANDS = [*(step["run"] for step in steps() if "run" in step), *(hook["entry"] for hook in hooks())]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_run_exists(command: str) -> None:
    program, *arguments = command.split()
    if program == "make":
        assert arguments
        assert set(arguments) <= TARGETS
    else:
        assert arguments == []
        assert os.access(ROOT / program, os.X_OK)


def test_ci_runs_everything_where_nothing_may_be_skipped() -> None:
    job = load(".github/workflows/ci.yml")["jobs"]["everything"]
    assert job["container"] == "debian:12"
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    script = (ROOT / ".ci/run").read_text()
    assert "REQUIRE_ALL=1" in script
    named = re.findall(r"^make (.*)$", script, re.MULTILINE)
    assert named
    assert {target for line in named for target in line.split()} <= TARGETS


def test_a_workflow_may_read_and_nothing_else() -> None:
    for workflow in (ROOT / ".github" / "workflows").iterdir():
        said = load(str(workflow.relative_to(ROOT)))
        assert said["permissions"] == {"contents": "read"}
        assert all("permissions" not in job and "timeout-minutes" in job for job in said["jobs"].values())
    for step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_hooks_are_run_by_the_make_of_this_project_on_files_that_there_are() -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "app").rglob("*.py")] + ["pyproject.toml"]
    for hook in hooks():
        assert hook["language"] == "system"
        assert hook["pass_filenames"] is False
        assert any(re.search(hook["files"], file) for file in files), hook["id"]


def test_no_target_is_taken_for_a_file() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == TARGETS
