"""Loads the libraries that the examples import."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import lightning.pytorch

import tests.integration.torch.preload

__all__ = ["keras", "lightning", "tests"]
