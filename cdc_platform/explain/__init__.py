"""Why a row is as it is, or isn't there, and what became of a message: answers from the lake, without Spark."""
