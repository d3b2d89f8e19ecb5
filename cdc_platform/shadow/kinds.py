"""Words of comparisons. No Spark here: Dagster's pages and sensors import it."""

ONLY_OF, ONLY_BY, DIFFERS = "only_of", "only_by", "differs"
EQUAL, DIFFERENT, BEHIND, NOT_COMPARED = "equal", "different", "behind", "not_compared"
COUNTS = {ONLY_OF: "only_of", ONLY_BY: "only_by", DIFFERS: "differing"}
"""Kind of difference → what their number is called."""
STATES = DIFFERENT, NOT_COMPARED, BEHIND, EQUAL
"""What needs attention first."""
