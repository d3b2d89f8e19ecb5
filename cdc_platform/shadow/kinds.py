"""Words of comparisons. No Spark here: Dagster's pages and sensors import it."""

ONLY_OF, ONLY_BY, DIFFERS = "only_of", "only_by", "differs"
EQUAL, DIFFERENT, BEHIND, NOT_COMPARED = "equal", "different", "behind", "not_compared"
STATES = DIFFERENT, NOT_COMPARED, BEHIND, EQUAL
"""What needs attention first."""
