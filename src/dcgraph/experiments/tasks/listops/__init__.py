"""ListOps: only the value of a nested expression is known, its tree and every step are learned."""
