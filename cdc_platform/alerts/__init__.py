"""Alerts: what needs attention, told to the configured channels once when it begins and once when it is over."""
