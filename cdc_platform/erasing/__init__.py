"""A subject's bytes taken out of the whole lake, for good, with the proof that none is left."""
