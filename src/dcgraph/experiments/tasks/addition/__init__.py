"""Adding handwritten digits: only the sum is known, each digit is a discrete step.

``task`` joins what the other rooms hold: ``data`` (images, lists of summands, examples), ``model``
(the paper's), ``baselines`` (the two models it is compared with), ``settings`` (with the presets),
``tables`` (the paper's numbers and our runs), ``commands`` (evaluate, predict, data), ``panels``
(what a report shows). ``symbols`` finds which digit each learned symbol stands for.
"""
