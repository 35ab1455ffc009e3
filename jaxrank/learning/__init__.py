"""Differentiable ranking: relaxations, losses, rankers, training, and what probes see of a learnt ranker."""
