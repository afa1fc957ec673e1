"""Artifacts as one page of HTML that needs no network: findings, pictures, and the numbers behind them."""
