"""Runs rooms of all sources of a cdc.yaml in a process of its own: to be killed, or to use Spark Connect.

`python driver.py cdc.yaml [room …]`
"""

import sys

from cdc_platform import chain
from cdc_platform.config import load_config
from cdc_platform.resources.spark import open_session


def main(file, *rooms):
    config = load_config(file)
    spark = open_session(config)
    for source in config.sources:
        for room in rooms or chain.ROOMS:
            result = chain.ROOMS[room](spark, config, source)
            sys.stdout.write(f"{room} {source.name} {result.rows} {result.batches}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
