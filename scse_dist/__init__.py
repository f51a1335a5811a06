"""scse-dist: distributed pretraining of looped transformers."""

__version__ = "0.1.0"
