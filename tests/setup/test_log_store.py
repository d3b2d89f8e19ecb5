from cdc_platform.setup import log_store
from cdc_platform.setup.packaged import packaged


def test_the_jar_is_its_source_compiled():
    assert log_store.build() == packaged("log-store.jar").read_bytes(), "python -m cdc_platform.setup.log_store"
