"""Runs stages of all sources of a cdc.yaml in a process of its own: to be killed, or to use Spark Connect.

`python driver.py cdc.yaml [stage …]`, or `python driver.py cdc.yaml cdc-platform COMMAND …` for a command.
"""

import importlib
import json
import os
import signal
import sys
from unittest import mock

from cdc_platform import chain
from cdc_platform.cli.app import run
from cdc_platform.config import load_config
from cdc_platform.lake import stores
from cdc_platform.spark.session import open_session

KILL = "CDC_TEST_KILL"
"""A function, texts and the URI of a file of the lake (or null), as JSON: instead of a call of the function whose
arguments mention all the texts, once the file is there, the process and its JVM are killed."""


def die_at(lake, function, mentioned, uri):
    """See KILL."""
    module, name = function.rsplit(".", 1)
    file = uri and uri.removeprefix(f"{lake.uri()}/")
    own = getattr(importlib.import_module(module), name)

    def call(*args, **named):
        told = repr((args, named))
        if all(text in told for text in mentioned) and (file is None or lake.exists(file)):
            os.killpg(0, signal.SIGKILL)
        return own(*args, **named)

    mock.patch(function, call).start()


def main(file, *stages):
    config = load_config(file)
    if KILL in os.environ:
        die_at(stores.lake(config), *json.loads(os.environ[KILL]))
    if stages[:1] == ("cdc-platform",):
        sys.exit(run([*stages[1:], "--config", file]))
    spark = open_session(config)
    for source in config.sources:
        for stage in stages or chain.STAGES:
            result = chain.STAGES[stage](spark, config, source)
            sys.stdout.write(f"{stage} {source.name} {result.rows} {result.batches}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
