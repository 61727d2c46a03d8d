"""Charts for the pages of backtest, evaluation and tune."""
