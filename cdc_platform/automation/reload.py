"""Loads the code location anew, so that new tables get their assets without a hand on the button.

Dagster reads definitions when a code location is loaded. Its web server takes the request to load it again
(`reloadRepositoryLocation` of its GraphQL), and the daemon follows within a minute. CDC_DAGSTER_URL says where the web
server is; `cdc-platform ui` sets it.
"""

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

VARIABLE = "CDC_DAGSTER_URL"
TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Whether the web server loaded the location anew, and what came of it in words."""

    done: bool
    text: str


def reload(location: str | None) -> Reloaded:
    """Asks the web server to load a code location anew."""
    from dagster_graphql import (
        DagsterGraphQLClient,
        DagsterGraphQLClientError,
        ReloadRepositoryLocationStatus,
    )

    url = os.environ.get(VARIABLE)
    if not url or location is None:
        return Reloaded(False, f"reload the code location in Dagster (Deployment, Reload), or set {VARIABLE}")
    parts = urlsplit(url)
    try:
        client = DagsterGraphQLClient(
            str(parts.hostname), parts.port, use_https=parts.scheme == "https", timeout=TIMEOUT_S
        )
        info = client.reload_repository_location(location)
    except (DagsterGraphQLClientError, OSError) as error:
        return Reloaded(False, f"{url} did not load {location} anew: {error.__cause__ or error}")
    if info.status == ReloadRepositoryLocationStatus.SUCCESS:
        return Reloaded(True, f"loaded {location} anew")
    return Reloaded(False, f"{location} could not be loaded: {info.message}")
