"""Plain Python versions of every policy, written line by line from the papers, and no cleverness.

A reference draws no random numbers: it is given them, so that a test can drive it and the JAX version with the same.
Items and positions count from 0, as everywhere in the code; t counts from 1, as in the papers.
"""
