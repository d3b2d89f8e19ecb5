"""What is a secret in cdc.yaml, and how it is kept out of what people see."""

import re

SECRET_KEYS = re.compile(
    r"password|passphrase|secret|jaas|token|credential|\.key$|keystore\.key|key\.pem|access.key|account\.key",
    re.IGNORECASE,
)


def redact(properties: dict[str, str]) -> dict[str, str]:
    """Properties fit for logs: values of secret-looking keys replaced."""
    return {k: "***" if SECRET_KEYS.search(k) else v for k, v in properties.items()}
