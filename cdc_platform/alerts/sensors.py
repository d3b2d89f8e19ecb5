"""A sensor per channel: what changed since its last look goes out as one message. A message that can't be sent fails
the tick, whose cursor then stays: the next one sends it."""

import json
import os
from collections.abc import Sequence

import dagster as dg

from cdc_platform.alerts.channels import send
from cdc_platform.alerts.message import Message
from cdc_platform.alerts.problems import changes, look
from cdc_platform.automation.naming import Naming
from cdc_platform.config.alerts import Channel

INTERVAL_S = 30
PAGES = "CDC_DAGSTER_URL"
"""Set by `cdc-platform ui`: where Dagster's pages are."""


def alert_sensors(naming: Naming, checks: Sequence[dg.AssetCheckKey]) -> list[dg.SensorDefinition]:
    """The sensors of the configured channels. checks: those of the platform's own definitions."""
    return [_sensor(naming, checks, name, channel) for name, channel in naming.config.alerts.channels().items()]


def _sensor(naming: Naming, checks: Sequence[dg.AssetCheckKey], name: str, channel: Channel) -> dg.SensorDefinition:
    @dg.sensor(
        name=naming.name(f"alert_{name}"),
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        # no job and no asset: it launches nothing
        description=f"Tells {type(channel).__name__.lower()} when these begin and end: {', '.join(channel.report)}.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        before: dict[str, int] = json.loads(context.cursor or "{}")
        seen = look(context.instance, naming, checks, channel.report)
        new, over, known = changes(before, seen)
        told = f"{len(known)} problems known"
        if new or over:
            title = " ".join(["CDC platform", *naming.prefix])
            pages = naming.config.alerts.pages or os.environ.get(PAGES)
            message = Message(title, new, over, pages)
            send(name, channel, message)
            told = f"sent: {message.subject}"
        return dg.SensorResult(skip_reason=dg.SkipReason(told), cursor=json.dumps(known))

    return sensor
