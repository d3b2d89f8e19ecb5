import hashlib
import stat
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from cdc_platform.errors import SetupError
from cdc_platform.setup import jars
from cdc_platform.setup.java import Java, find_java


def no_words(_: str) -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two jars of two confs."""
    for name in ("spark/a-1.0.jar", "broker/b-2.0.jar"):
        (tmp_path / "jars" / name).parent.mkdir(parents=True)
        (tmp_path / "jars" / name).write_text(name)
    return tmp_path / "jars"


def fake_java(tmp_path: Path, script: str) -> Java:
    """A program in Java's place; it can't know more of a repository than what we write here."""
    binary = tmp_path / "java"
    binary.write_text(f"#!/bin/sh\necho turn >> {tmp_path}/turns\n{script}\n")
    binary.chmod(binary.stat().st_mode | stat.S_IEXEC)
    return Java(binary, tmp_path, 17)


def test_what_is_installed_is_what_the_lock_says():
    assert jars.differences(jars.jars_dir(), jars.read_lock()) == []


def test_the_lock_covers_ivy_xml_and_nothing_of_a_conf_it_lacks():
    locked = jars.read_lock()
    assert set(jars.named_jars([*jars.ALWAYS, "s3"])) <= locked.keys()
    confs = {c.attrib["name"] for c in ET.parse(jars.IVY_FILE).getroot().iter("conf")}
    assert {name.split("/")[0] for name in locked} == confs
    assert all(len(digest) == 64 for digest in locked.values())


def test_no_repository_is_named():
    assert "://" not in jars.IVY_FILE.read_text().replace("http://ant.apache.org", "")
    assert "://" not in jars.LOCK_FILE.read_text()


def test_spark_gets_only_what_pyspark_lacks():
    names = [jars.artifact(Path(p).name) for p in jars.spark_jars()]
    shipped = {jars.artifact(f.name) for f in jars._pyspark_jars().glob("*.jar")}
    assert len(shipped) > 100
    assert not set(names) & shipped
    assert len(names) == len(set(names))
    assert {"delta-spark_4.2_2.13", "spark-sql-kafka-0-10_2.13", "kafka-clients", "delta-storage"} <= set(names)
    assert all(Path(p).is_file() for p in jars.spark_jars())


@pytest.mark.parametrize(
    ("jar", "name"),
    [
        ("delta-spark_4.2_2.13-4.4.0.jar", "delta-spark_4.2_2.13"),
        ("spark-sql-kafka-0-10_2.13-4.2.0.jar", "spark-sql-kafka-0-10_2.13"),
        ("commons-pool2-2.13.1.jar", "commons-pool2"),
        ("guava-33.6.0-jre.jar", "guava"),
        ("netty-common-4.2.13.Final.jar", "netty-common"),
        ("icu4j-78.3.jar", "icu4j"),
    ],
)
def test_artifact(jar, name):
    assert jars.artifact(jar) == name


def test_a_lake_on_s3_has_the_connector_and_no_bundle():
    names = [jars.artifact(Path(p).name) for p in jars.spark_jars("s3")]
    shipped = {jars.artifact(f.name) for f in jars._pyspark_jars().glob("*.jar")}
    assert {"hadoop-aws", "s3", "sts", "apache-client", "netty-nio-client", "analyticsaccelerator-s3"} <= set(names)
    assert not set(names) & shipped
    assert len(names) == len(set(names))
    assert sum(Path(p).stat().st_size for p in set(jars.spark_jars("s3")) - set(jars.spark_jars())) < 20 << 20
    hadoop = next(f.name for f in jars._pyspark_jars().glob("hadoop-client-api-*.jar"))
    assert hadoop.removeprefix("hadoop-client-api-") in {
        Path(p).name.removeprefix("hadoop-aws-") for p in jars._installed("s3")
    }


def test_only_what_is_asked_for_is_fetched(monkeypatch, tmp_path):
    """A second conf goes beside the first, which stays as it is."""
    monkeypatch.setenv("CDC_JARS", str(tmp_path / "jars"))
    (tmp_path / "jars" / "spark").mkdir(parents=True)
    (tmp_path / "jars" / "spark" / "a-1.0.jar").write_text("spark/a-1.0.jar")
    monkeypatch.setattr(jars, "named_jars", lambda confs: ["s3/b-1.0.jar"])
    digest = hashlib.sha256(b"x\n").hexdigest()
    monkeypatch.setattr(jars, "read_lock", lambda: {"spark/a-1.0.jar": "0", "s3/b-1.0.jar": digest})
    java = fake_java(
        tmp_path,
        f'echo "$@" > {tmp_path}/asked; for last; do :; done; '
        'out="${last%/\\[conf\\]*}"; mkdir -p "$out/s3"; echo x > "$out/s3/b-1.0.jar"',
    )
    for _ in range(2):
        assert jars.ensure_jars(java, no_words, ["s3"]) == tmp_path / "jars"
    assert " -confs s3 " in (tmp_path / "asked").read_text()
    assert (tmp_path / "turns").read_text().split() == ["turn"]
    assert jars.checksums(tmp_path / "jars").keys() == {"spark/a-1.0.jar", "s3/b-1.0.jar"}


def test_the_broker_has_its_server_and_a_log_binding():
    path = jars.broker_classpath()
    assert "kafka-server-4.1.0.jar" in path
    assert "log4j-slf4j-impl" in path


def test_missing_jars_name_make_setup(monkeypatch, tmp_path):
    monkeypatch.setenv("CDC_JARS", str(tmp_path / "none"))
    for needs in (jars.spark_jars, jars.broker_classpath):
        with pytest.raises(SetupError, match="make setup"):
            needs()


def test_differences_name_each_jar(folder):
    locked = jars.checksums(folder)
    assert locked["spark/a-1.0.jar"] == hashlib.sha256(b"spark/a-1.0.jar").hexdigest()
    assert jars.differences(folder, locked) == []
    assert jars.differences(folder, {**locked, "s3/c-1.0.jar": "0"}) == []
    (folder / "spark/a-1.0.jar").write_text("tampered")
    (folder / "broker/b-2.0.jar").rename(folder / "broker/c.jar")
    assert jars.differences(folder, locked) == [
        "broker/b-2.0.jar is missing",
        "broker/c.jar is not in jars.lock",
        "spark/a-1.0.jar has another checksum",
    ]


def test_a_foreign_folder_is_never_written_to(monkeypatch, folder):
    monkeypatch.setenv("CDC_JARS", str(folder))
    before = jars.checksums(folder)
    with pytest.raises(SetupError, match="CDC_JARS"):
        jars.ensure_jars(find_java(), no_words)
    assert jars.checksums(folder) == before


def test_a_fetched_jar_that_differs_from_the_lock_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("CDC_JARS", str(tmp_path / "cache" / "jars"))
    java = fake_java(
        tmp_path,
        'for last; do :; done; out="${last%/\\[conf\\]*}"; cd "$(dirname "$out")"; '
        + "; ".join(f'mkdir -p "out/{Path(n).parent}"; echo x > "out/{n}"' for n in jars.named_jars(jars.ALWAYS)),
    )
    with pytest.raises(SetupError, match=r"kafka-clients-3\.9\.2\.jar has another checksum"):
        jars.ensure_jars(java, no_words)
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_failing_network_is_tried_three_times_and_told(monkeypatch, tmp_path):
    monkeypatch.setenv("CDC_JARS", str(tmp_path / "cache" / "jars"))
    monkeypatch.setattr(jars, "_PAUSE_S", 0)
    said: list[str] = []
    java = fake_java(tmp_path, 'echo "	[FAILED     ] org.x#y;1!y.jar: connection reset"; exit 1')
    with pytest.raises(SetupError, match=r"connection reset.*make setup"):
        jars.ensure_jars(java, said.append)
    assert (tmp_path / "turns").read_text().split() == ["turn"] * 3
    assert [s[:10] for s in said[1:]] == ["try 1 of 3", "try 2 of 3"]
    assert not (tmp_path / "cache" / "jars").exists()


def test_success_without_the_jars_is_no_success(monkeypatch, tmp_path):
    monkeypatch.setattr(jars, "_PAUSE_S", 0)
    with pytest.raises(SetupError, match=r"lacking spark/delta-spark_4\.2_2\.13-4\.4\.0\.jar"):
        jars.resolve(tmp_path, fake_java(tmp_path, "exit 0"), no_words, jars.ALWAYS)
