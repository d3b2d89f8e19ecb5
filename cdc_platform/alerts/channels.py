"""Sending a message: SMTP by the standard library, Slack by dagster-slack, webhooks by requests. Secrets, and so
webhooks' addresses, are in no error."""

import smtplib
import ssl
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from typing import Any

from cdc_platform.alerts.message import Message
from cdc_platform.config.alerts import Channel, Email, Slack, Webhook
from cdc_platform.errors import AlertNotSent, SetupError


def send(name: str, channel: Channel, message: Message) -> None:
    """Send it, or raise AlertNotSent."""
    by_kind: dict[type[Channel], Callable[[str, Any, Message], None]] = {
        Email: _email,
        Slack: _slack,
        Webhook: _webhook,
    }
    by_kind[type(channel)](name, channel, message)


def _email(name: str, channel: Email, message: Message) -> None:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = message.subject, channel.sender, ", ".join(channel.to)
    mail.set_content(message.text)
    try:
        with _server(channel) as server:
            if channel.user:
                server.login(channel.user, channel.password.get_secret_value())
            if refused := server.send_message(mail):
                server.send_message(_refused(channel, message, refused))
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise AlertNotSent(name, f"{channel.host}:{channel.port} answered {error.smtp_code} {said}") from None
    except (OSError, smtplib.SMTPException) as error:
        raise AlertNotSent(name, f"{channel.host}:{channel.port}: {error}") from None


def _refused(channel: Email, message: Message, refused: Mapping[str, tuple[int, bytes]]) -> EmailMessage:
    """To those that got a message: who didn't. The message isn't sent again, for they would get it each time."""
    mail = EmailMessage()
    mail["Subject"], mail["From"] = f"{message.title}: some didn't get the last message", channel.sender
    mail["To"] = ", ".join(to for to in channel.to if to not in refused)
    said = (f"{to}: {code} {text.decode(errors='replace')}" for to, (code, text) in refused.items())
    mail.set_content("The mail server refused these recipients of the message before this one:\n\n" + "\n".join(said))
    return mail


def _server(channel: Email) -> smtplib.SMTP:
    """A connection, encrypted as the channel says, to a server whose certificate is checked."""
    where = {"host": channel.host, "port": channel.port, "timeout": channel.timeout_s}
    if channel.security == "tls":
        return smtplib.SMTP_SSL(**where, context=ssl.create_default_context())
    server = smtplib.SMTP(**where)
    if channel.security == "starttls":
        server.starttls(context=ssl.create_default_context())
    return server


def _slack(name: str, channel: Slack, message: Message) -> None:
    try:
        from dagster_slack import SlackResource
        from slack_sdk.errors import SlackApiError, SlackClientError
    except ImportError:
        raise SetupError("alerts.slack needs dagster-slack: pip install 'cdc-platform[slack]'") from None

    client = SlackResource(token=channel.token.get_secret_value()).get_client()
    client.timeout = max(1, round(channel.timeout_s))
    try:
        client.chat_postMessage(channel=channel.channel, text=message.slack)
    except SlackApiError as error:
        raise AlertNotSent(name, f"Slack answered {error.response.get('error', 'an error')}") from None
    except (SlackClientError, OSError) as error:
        raise AlertNotSent(name, f"Slack: {type(error).__name__}") from None


def _webhook(name: str, channel: Webhook, message: Message) -> None:
    import requests

    headers = {k: v.get_secret_value() for k, v in channel.headers.items()}
    try:
        answer = requests.post(
            channel.url.get_secret_value(),
            json=message.json,
            headers=headers,
            timeout=channel.timeout_s,
            allow_redirects=False,  # a redirect would carry the headers elsewhere
        )
    except requests.RequestException as error:  # its text holds the address
        raise AlertNotSent(name, f"the webhook can't be reached: {type(error).__name__}") from None
    if not 200 <= answer.status_code < 300:
        raise AlertNotSent(name, f"the webhook answered {answer.status_code}")
