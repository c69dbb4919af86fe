"""The playground: one page that computes in the browser with the models of the package.

``build`` packs the weights, the modules in ``js/``, ``style.css`` and ``page.html`` into it. In
``js/`` a module has one subject: ``noise`` (one discrete step), ``chain`` (many, with gradients),
``adder`` and ``drawing`` (MNIST addition), ``expressions`` and ``listops``. A ``panel-*.js`` shows
one of them on the page, and ``main`` starts them all.
"""
