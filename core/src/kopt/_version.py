"""The one version of kopt and of every first-party plugin."""

__version__ = "0.2.0"
