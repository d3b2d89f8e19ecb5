"""`cdc-platform setup`: what an installed package needs beside its Python packages."""

from typing import Annotated

import typer

from cdc_platform.cli.output import printed, progress


@printed
def command(
    install_java: Annotated[
        bool, typer.Option("--install-java", help="Install Java by apt-get where it is missing.")
    ] = False,
    store: Annotated[
        list[str] | None, typer.Option(help="Also what a lake on this kind of store needs: s3. May be repeated.")
    ] = None,
) -> dict[str, str | None]:
    """Fetch the jars of Spark, Kafka and the DDL parsers into the user's cache, and prepare quick starts of Spark.

    Commands that need jars fetch them, too; this does it beforehand, e.g. in a container image. CDC_JARS names another
    folder than the cache. Raises SetupError without Java or network.
    """
    from cdc_platform.automation import class_archive
    from cdc_platform.errors import ConfigError
    from cdc_platform.setup.jars import ALWAYS, FOR_STORE, ensure_jars
    from cdc_platform.setup.java import ensure_java, find_java

    for kind in store or ():
        if kind not in FOR_STORE:
            raise ConfigError("--store", f"no jars are known for {kind!r}", FOR_STORE)
    java = ensure_java(progress) if install_java else find_java()
    folder = ensure_jars(java, progress, [*ALWAYS, *(FOR_STORE[kind] for kind in store or ())])
    quick = class_archive.ensure()
    return {
        "java": f"{java.version} at {java.home}",
        "jars": str(folder),
        "class archive": str(quick) if quick else None,
    }
