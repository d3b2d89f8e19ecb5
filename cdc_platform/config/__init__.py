"""`cdc.yaml`: a typed, validated model. An unknown key or a bad value is a ConfigError that names the key and says
what would have worked. Values may be `${ENV_VAR}`; secrets come in only that way and are never printed."""

from cdc_platform.config.alerts import Alerts
from cdc_platform.config.bridges import Bridge
from cdc_platform.config.catalog import Catalog
from cdc_platform.config.load import load_config, parse_config
from cdc_platform.config.reconcile import Reconcile
from cdc_platform.config.root import Config, Maintenance, Spark
from cdc_platform.config.secrets import SECRET_KEYS, redact
from cdc_platform.config.source import Source
from cdc_platform.config.storage import Storage
from cdc_platform.config.tables import Tables

__all__ = [
    "SECRET_KEYS",
    "Alerts",
    "Bridge",
    "Catalog",
    "Config",
    "Maintenance",
    "Reconcile",
    "Source",
    "Spark",
    "Storage",
    "Tables",
    "load_config",
    "parse_config",
    "redact",
]
