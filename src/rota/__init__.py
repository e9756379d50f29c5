"""rota shares a lab's GPUs between the people who train on them."""

__version__ = "0.1.0"
