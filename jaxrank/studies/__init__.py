"""Many runs with one purpose: worlds by name, sweeps, tuning, the figures of the papers."""
