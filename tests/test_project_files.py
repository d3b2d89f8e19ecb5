"""Licence, workflows and hooks: that they are whole, and that the commands in them exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def test_the_licence_is_the_whole_apache_licence():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert all(f"\n   {n}. " in text for n in range(1, 10))
    assert "APPENDIX: How to apply the Apache License to your work." in text


@pytest.mark.parametrize("name", ["CHANGELOG", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT"])
def test_links_of_project_pages_lead_somewhere(name):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / f"{name}.md").read_text()):
        assert (ROOT / link).exists(), link


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_of_workflows_exist(path):
    commands = "\n".join(step["run"] for step in steps(path) if "run" in step)
    assert commands
    assert set(re.findall(r"\bmake ([a-z-]+)", commands)) <= TARGETS
    for file in re.findall(r"(?:bash|-r) ([\w./-]+)", commands):
        assert (ROOT / file).is_file(), file
    for module in re.findall(r"-m (tests[\w.]+)", commands):
        assert (ROOT / (module.replace(".", "/") + ".py")).is_file(), module


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-workflows", "workflows/*.yaml"),
        ("vendor.github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yaml"),
        ("vendor.github-issue-config", "ISSUE_TEMPLATE/config.yml"),
        ("vendor.dependabot", "dependabot.yml"),
    ],
)
def test_github_takes_its_files(schema, pattern):
    files = sorted(map(str, (ROOT / ".github").glob(pattern)))
    assert files
    program = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run([program, "--builtin-schema", schema, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_least_rights_and_an_end(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


@pytest.mark.thorough
def test_every_python_that_the_package_allows_is_tested():
    project = (ROOT / "pyproject.toml").read_text()
    named = set(re.findall(r"Programming Language :: Python :: ([\d.]+)", project))
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    assert set(ci["jobs"]["fast"]["strategy"]["matrix"]["python"]) == named


@pytest.mark.thorough
def test_hooks_use_the_programs_of_the_checkout():
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    for hook in repo["hooks"]:
        program = shlex.split(hook["entry"])[0]
        assert program.startswith(".venv/bin/"), hook["id"]
        assert (ROOT / program).exists(), program
