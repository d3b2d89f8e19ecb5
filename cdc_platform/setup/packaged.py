"""Files that are installed with the package, and how an installation is completed. Standard library only: set-up
imports this before any package is there."""

from functools import cache
from importlib.resources import files
from pathlib import Path

PARENT = Path(str(files("cdc_platform"))).parent
"""The folder that holds the package: the checkout's top level, or site-packages."""


def packaged(name: str) -> Path:
    """A file of `cdc_platform/data`. Raises FileNotFoundError where the installation lacks it."""
    path = PARENT / "cdc_platform" / "data" / name
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the installation of cdc-platform is damaged")
    return path


@cache
def in_checkout() -> bool:
    """Whether the package runs from a checkout of its repository, which has a Makefile beside it."""
    return (PARENT / "Makefile").is_file() and (PARENT / "pyproject.toml").is_file()


def setup_command() -> str:
    """The command that fetches what is missing: it differs between a checkout and an installed package."""
    return "make setup" if in_checkout() else "cdc-platform setup"
