"""Helpers that the author of a policy, a click model or an environment may use."""
