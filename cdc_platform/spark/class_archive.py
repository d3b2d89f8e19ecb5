"""The class-data archive (AppCDS, java -XX:SharedArchiveFile) of Spark's JVM: sessions start in about two thirds of the
time.

It fits one class path and one Java: it lies in the virtual environment whose jars it holds, its name contains the
rest, and a JVM that it doesn't fit goes on without it. automation/class_archive.py makes it.
"""

import hashlib
import sys
from pathlib import Path

from cdc_platform.setup.jars import spark_jars
from cdc_platform.setup.java import find_java

QUIET = "-Xlog:cds*=off"  # what doesn't fit is no news for a user


def archive() -> Path:
    """Where the archive for this Java and these jars is to lie. Raises SetupError without Java or jars."""
    java = find_java()
    told = f"{java.binary} {java.binary.stat().st_mtime_ns} {spark_jars()}"
    return Path(sys.prefix) / f"spark-{hashlib.sha256(told.encode()).hexdigest()[:12]}.jsa"


def options() -> str:
    """Java options that use the archive where it is there, else none."""
    return f"-XX:SharedArchiveFile={there} {QUIET}" if (there := archive()).is_file() else ""
