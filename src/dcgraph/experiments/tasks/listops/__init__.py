"""ListOps: only the value of a nested expression is known, its tree and every step are learned.

``task`` joins what the other rooms hold: ``data`` (the language, its generator, the sets),
``model`` (the paper's), ``baselines``, ``settings`` (with the presets), ``tables`` (the paper's
numbers and our runs), ``commands`` (evaluate, predict, data), ``panels`` (what a report shows),
``kernels`` (for a GPU). ``decoding`` computes what a model does in eval mode by look-up;
``reading`` sets what it read in an expression beside the truth, as text or as a page.
"""
