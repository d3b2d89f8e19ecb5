"""What today's decoder and options would make of the bytes in landing: a side lake, and how its tables differ."""
