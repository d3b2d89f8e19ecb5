"""How a row may differ between what is in use and a replay. No Spark here: Dagster's pages and sensors import it."""

KINDS = ONLY_IN_USE, ONLY_IN_REPLAY, DIFFERING = "only_in_use", "only_in_replay", "differing"
