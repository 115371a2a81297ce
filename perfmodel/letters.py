"""The notation table, made from the fields, arguments and functions that carry a letter."""

from dataclasses import fields

from perfmodel.deployment import Constants, Deployment
from perfmodel.hardware import Accelerator, Link
from perfmodel.model import Indexer, Latent, Model, Window
from perfmodel.quantity import ARGUMENTS, COMPUTED, Letter


def notation() -> list[Letter]:
    """All letters of the package: fields of the dataclasses, arguments, computed quantities."""
    rows = [
        Letter(item.metadata["symbol"], item.metadata["unit"], item.metadata["meaning"], f"{cls.__name__}.{item.name}")
        for cls in (Model, Latent, Indexer, Window, Accelerator, Link, Deployment, Constants)
        for item in fields(cls)
        if "symbol" in item.metadata
    ]
    return rows + list(ARGUMENTS.values()) + COMPUTED
