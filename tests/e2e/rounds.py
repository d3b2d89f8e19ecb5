"""Rounds of all stages of a cdc.yaml's first source in one process, as continuous catch-up does them: one for each line
that comes, told by a line with its seconds.

`python -m tests.e2e.rounds cdc.yaml`
"""

import sys
import time

from cdc_platform import chain
from cdc_platform.config import load_config
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.spark.session import open_session


def main(file: str) -> None:
    config = load_config(file)
    [source] = config.sources
    spark = open_session(config)
    for _ in sys.stdin:
        began = time.monotonic()
        with source_lock(config, source):
            for stage in chain.STAGES.values():
                stage(spark, config, source)
        sys.stdout.write(f"round {time.monotonic() - began:.2f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
