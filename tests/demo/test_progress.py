import logging
import time

from cdc_platform.config import parse_config
from cdc_platform.demo.progress import Progress, each_source_said


def test_nothing_is_silent_for_long():
    said = []
    with Progress(said.append, silent_s=0.2) as told:
        told("publishing")
        told.note("compressing")
        time.sleep(1)
    assert said[0] == "publishing"
    assert said[1].startswith("  publishing: compressing, ")
    assert len(said) >= 3
    before = len(said)
    time.sleep(0.5)
    assert len(said) == before  # nothing more once it is over


def test_a_run_says_which_format_it_has_come_to():
    names = {"shop_canal": "canal", "shop_canal_json": "canal_json"}
    sources = [{"name": name, "format": kind, "topics": [name]} for name, kind in names.items()]
    config = parse_config({"lake": "x", "sources": sources})
    said, log = [], logging.getLogger("cdc_platform.run")
    with each_source_said("run 1", config, Progress(said.append)):
        for line in ("landing shop_canal_json: started", "landing shop_canal_json: 3 records", "landing shop_canal: x"):
            log.info(line)
    log.info("landing shop_canal: later")
    assert said == ["  run 1, canal_json (1 of 2)", "  run 1, canal (2 of 2)"]
