"""Pages made from the commands and the settings themselves: docs/cli.md and the manual pages."""
