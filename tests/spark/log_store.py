"""Spark's log store in a JVM of one's own, without Spark.

`python -m tests.spark.log_store FOLDER OPTIONS ME`: for each line of stdin makes the commit of that name, and says what
became of it. OPTIONS: Hadoop's, as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError, get_return_value

from cdc_platform.config.storage import Storage
from cdc_platform.setup.jars import spark_jars
from cdc_platform.setup.java import find_java


def options(uri: str, storage: Storage) -> dict[str, str]:
    """Hadoop's options for a lake."""
    return {k.removeprefix("spark.hadoop."): v for k, v in storage.spark_options(uri).items()}


def launch() -> JavaGateway:
    """A JVM that can make log stores."""
    import pyspark

    shipped = Path(pyspark.__file__).parent / "jars"
    path = os.pathsep.join([*spark_jars("s3"), f"{shipped}/*"])
    port: Any = launch_gateway(
        classpath=path, java_path=str(find_java().binary), die_on_exit=True, redirect_stderr=sys.stderr
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port))


class LogStore:
    """The platform's log store over a folder of commits."""

    def __init__(self, gateway: JavaGateway, folder: str, hadoop: dict[str, str]):
        self.jvm: Any = gateway.jvm
        self.conf = self.jvm.org.apache.hadoop.conf.Configuration()
        for key, value in hadoop.items():
            self.conf.set(key, value)
        self.folder = folder
        self.store = self.jvm.cdc_platform.LogStore(self.conf)
        path_ = self.jvm.org.apache.hadoop.fs.Path(folder)
        path_.getFileSystem(self.conf).mkdirs(path_)

    def write(self, name: str, *lines: str, overwrite: bool = False) -> str:
        """What becomes of it: "made", or the Java error's class and message."""
        actions = self.jvm.java.util.ArrayList()
        for line in lines:
            actions.add(line)
        path = self.jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")
        try:  # pyspark's own reading of errors asks the JVM of its session about them
            with mock.patch("py4j.java_gateway.get_return_value", get_return_value):
                self.store.write(path, actions.iterator(), overwrite, self.conf)
        except Py4JJavaError as error:
            return str(error.java_exception.toString())
        return "made"


def main(folder: str, hadoop: str, me: str) -> None:
    """As the module says."""
    gateway = launch()
    store = LogStore(gateway, folder, json.loads(hadoop))
    print(store.write(f"warm-{me}", me), flush=True)  # noqa: T201
    for name in sys.stdin:
        print(store.write(name.strip(), me), flush=True)  # noqa: T201
    gateway.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
