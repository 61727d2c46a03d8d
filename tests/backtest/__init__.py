"""The backtest on histories whose truth is known."""
