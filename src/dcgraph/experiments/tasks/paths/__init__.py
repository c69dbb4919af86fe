"""Path queries over knowledge graphs: who is at the end of a path, hop by hop?

``task`` joins what the other rooms hold: ``data`` (graphs, files, walks), ``model`` (ComplEx and
the paper's discrete one), ``baselines``, ``settings`` (with the presets), ``tables`` (the paper's
numbers and our runs), ``commands`` (evaluate, predict, data), ``kernels`` (for a GPU).
``predicting`` answers what people and programs ask, by ``answering``: with marks (``known``), among
``candidates``, with probabilities (``calibration``, fitted on the answers of ``reliability``), on
``screens``. ``decoding`` is by argmax or beam search; ``evaluation`` ranks answers; ``operators``
are differentiable steps that models share; ``search`` has the tables of runs that compare settings.
"""
