"""The jar with Spark's log store (data/LogStore.java), compiled by Janino, which pyspark carries: no JDK is needed, and
the same source gives the same bytes. `python -m cdc_platform.setup.log_store` renews the jar in the package."""

import io
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

from cdc_platform.errors import SetupError
from cdc_platform.setup.jars import log_store_classpath
from cdc_platform.setup.java import find_java
from cdc_platform.setup.packaged import packaged

_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"


def build() -> bytes:
    """The jar's bytes. Raises SetupError where it can't be compiled."""
    compiler, libraries = log_store_classpath()
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [
                *(str(find_java().binary), "-cp", os.pathsep.join(compiler), _COMPILER),
                *("-g:lines", "-d", out, "-classpath", os.pathsep.join(libraries), str(packaged("LogStore.java"))),
            ],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        classes = sorted(Path(out).rglob("*.class"))
        if done.returncode or not classes:
            raise SetupError(f"LogStore.java isn't compiled: {(done.stdout + done.stderr).strip()}")
        jar = io.BytesIO()
        with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
            for file in classes:
                entry = zipfile.ZipInfo(file.relative_to(out).as_posix())  # of the same date each time
                archive.writestr(entry, file.read_bytes())
    return jar.getvalue()


if __name__ == "__main__":
    packaged("log-store.jar").write_bytes(build())
