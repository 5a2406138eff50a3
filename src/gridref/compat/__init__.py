"""Other tools' interfaces with gridref behind them: a script changes its imports only."""
