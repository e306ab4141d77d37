"""`anabranch bench elastic` and `rebalance`: changing load and changing slots."""
