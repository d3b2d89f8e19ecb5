"""Whether two row changes of a batch can be the same one told twice, as workers see it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from cdc_platform.changelog import duplicates, order, repeated
from cdc_platform.changes.file_stats import Summary
from cdc_platform.formats.contract import EVENT
from cdc_platform.spark.arrow_tasks import spark_schema
from tests.changelog.test_unify import changed
from tests.lakes import file_at
from tests.properties import examples

UNTOLD = (None, None, 0)


def written(folder, *files):
    """Files of changes, each of row groups, and what each notes."""
    paths, notes = [], []
    for i, groups in enumerate(files):
        summary = Summary()
        path = str(folder / f"{i}.parquet")
        with pq.ParquetWriter(path, groups[0].schema) as writer:
            for group in groups:
                writer.write_batch(group)
                summary.add(group)
        paths.append(path)
        notes.append(summary.to_json())
    return paths, notes


def files_of(paths):
    return [file_at(p) for p in paths]


def found(paths, notes, cores):
    tasks = duplicates.tasks(duplicates.spans(files_of(paths), notes), cores)
    return any(duplicates.Twice()(duplicates.rows(task), {}) for task in tasks)


PLACES = st.tuples(st.integers(1, 2), st.integers(4, 9), st.integers(0, 1), st.sampled_from(("insert", "delete")))


@examples(60)
@given(
    files=st.lists(st.lists(st.lists(PLACES, min_size=1, max_size=4), min_size=1, max_size=3), min_size=1, max_size=3),
    cores=st.integers(1, 5),
)
def test_two_rows_of_one_place_are_found_wherever_they_stand(tmp_path_factory, files, cores):
    every = [p for groups in files for group in groups for p in group]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_FEW", 1)
        patch.setattr(duplicates, "_ROWS", 2)
        folder = tmp_path_factory.mktemp("places")
        paths, notes = written(folder, *([changed(*group) for group in groups] for groups in files))
        tasks = duplicates.tasks(duplicates.spans(files_of(paths), notes), cores)
        seen = [n for task in tasks for batch in duplicates.rows(task) for n in batch.column("binlog_pos").to_pylist()]
        assert sorted(int(n) for n in seen) == sorted(p[1] for p in every)  # each row is in one task
        assert found(paths, notes, cores) is (len(set(every)) < len(every))


def test_rows_that_tell_no_place_are_no_repeats(tmp_path):
    assert not found(*written(tmp_path, [changed(UNTOLD, UNTOLD, (1, 5, 0))], [changed(UNTOLD)]), 2)


def test_a_file_number_without_a_position_is_doubtful(tmp_path):
    paths, notes = written(tmp_path, [changed((1, 5, 0), (1, 9, 0))])
    [table] = [pq.read_table(p) for p in paths]
    at = table.schema.get_field_index("binlog_pos")
    column = pa.array([table.column(at)[0].as_py(), None], table.schema.field(at).type)
    pq.write_table(table.set_column(at, table.schema.field(at), column), paths[0])
    assert found(paths, notes, 2)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.parametrize(
    ("files", "may_be", "are"),
    [
        (([(1, 5, 0), (1, 9, 0)], [(1, 6, 0), (2, 5, 0)]), False, False),
        (([(1, 5, 0), (1, 9, 0)], [(1, 6, 0), (1, 9, 0)]), True, True),
        (([(1, 5, 0), (1, 2**63, 0)], [(1, 6, 0)]), True, False),
        (([(1, 5, 0), (1, 9, 0)], [(1, None, 0)]), True, False),
    ],
)
def test_where_workers_find_none_spark_finds_none(spark, tmp_path, files, may_be, are):
    paths, notes = written(tmp_path, *([changed(*rows)] for rows in files))
    assert not order.apart(notes)
    assert duplicates.shared(spark, files_of(paths), notes) is may_be
    rows = spark.read.schema(spark_schema(EVENT)).parquet(*paths).withColumn("offset", F.monotonically_increasing_id())
    assert (repeated.repeated_here(rows) is not None) is are
