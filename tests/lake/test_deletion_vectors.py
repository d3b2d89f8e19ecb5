"""Deletion vectors: what is written is read again, by others too; what isn't as its log tells it is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import deletion_vectors
from tests.lakes import store_at

_ROWS = st.sets(st.integers(0, 300) | st.integers(0, 2**40), min_size=1, max_size=300)


@settings(deadline=None)
@given(st.lists(_ROWS, min_size=1, max_size=4))
def test_vectors_of_one_file_are_read_as_they_were_written(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("t")
    with deletion_vectors.Vectors(store_at(folder)) as new:
        told = [new.add(BitMap64(some)) for some in rows]
    [file] = folder.iterdir()
    assert file.stat().st_size == 1 + sum(t["sizeInBytes"] + 8 for t in told)
    assert [t["cardinality"] for t in told] == [len(some) for some in rows]
    assert [set(deletion_vectors.read(store_at(folder), t)) for t in told] == rows


def test_without_vectors_and_after_an_error_there_is_no_file(store):
    with deletion_vectors.Vectors(store):
        pass
    with pytest.raises(RuntimeError), deletion_vectors.Vectors(store) as new:
        new.add(BitMap64([1]))
        raise RuntimeError
    assert store.below("") == []
    assert len(deletion_vectors.read(store, None)) == 0


def test_a_vector_is_read_where_it_is_among_others(store):
    with deletion_vectors.Vectors(store.at("t")) as new:
        told = [new.add(BitMap64([n, n + 70_000])) for n in range(20)]
    assert [set(deletion_vectors.read(store.at("t"), t)) for t in told] == [{n, n + 70_000} for n in range(20)]


INLINE = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 44,
    "cardinality": 6,
}
"""Delta's protocol, "Deletion Vectors", "JSON Example 2": an example of its own."""


def test_a_vector_in_the_log_itself_is_read():
    assert set(deletion_vectors.read(store_at("/nowhere"), INLINE)) == {3, 4, 7, 11, 18, 29}


def test_paths_are_told_as_the_protocol_tells_them():
    # Delta's protocol, "Derived Fields": ab^-aqEH.-t@S}K{vb[*k^ is this file.
    told = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    found = deletion_vectors._file(store_at("/table"), told)
    assert found.uri == ("/table/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")


@pytest.fixture
def written(store):
    with deletion_vectors.Vectors(store) as new:
        told = new.add(BitMap64([1, 2, 70_000]))
    [file] = store.below("")
    return store, file, told


@pytest.mark.parametrize("other", [{"cardinality": 4}, {"sizeInBytes": 7}, {"storageType": "p"}, {"storageType": "r"}])
def test_another_vector_than_the_log_tells_is_refused(written, other):
    folder, _, told = written
    with pytest.raises(LakeChanged, match="deletion vector"):
        deletion_vectors.read(folder, {**told, **other})


@pytest.mark.parametrize("at", [7, 20, -1])
def test_a_broken_vector_is_refused(written, at):
    folder, file, told = written
    data = bytearray(folder.read(file))
    data[at] ^= 1
    folder.put(file, bytes(data))
    with pytest.raises(LakeChanged, match="deletion vector"):
        deletion_vectors.read(folder, told)
