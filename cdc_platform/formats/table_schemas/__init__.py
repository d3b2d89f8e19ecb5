"""What the columns of a table are at a place of a source's history: known once, for all formats.

The sources' DDL (statements, and the `tableChanges` of Debezium) and a file of CREATE TABLE statements become states of
each table with their places (`states`, on the driver). Decoders look up the state where a row stands (`lookup`).
"""
