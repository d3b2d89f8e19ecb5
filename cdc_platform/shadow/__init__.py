"""Two feeds of one database: whether they bring the same tables, at a point that both have reached."""
