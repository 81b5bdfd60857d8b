"""What stops a command, each with its exit status."""


class NativeError(Exception):
    """It could not run; the message names what failed and the remedy."""

    status = 3


class SettingsError(NativeError):
    """The call or the settings are wrong; the message names each fault on a line of its own."""

    status = 2
