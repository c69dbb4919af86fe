"""Populations: R replicas of any module, trained and evaluated as one program.

:class:`Population` is the program. :class:`Adam` has a learning rate for every replica.
:class:`LSTM`, :class:`GRU` and :class:`RNN` take the place of torch's, which cannot be mapped.
"""

from ._adam import Adam
from ._population import Population
from ._recurrent import GRU, LSTM, RNN

__all__ = ["GRU", "LSTM", "RNN", "Adam", "Population"]
