"""Answers one can act on: marks, evidence, candidates and calibrated probabilities."""
