"""Datasets: downloading, reading, partitioning among clients, and transforms of batches."""

from .availability import Status, list_datasets, status
from .directory import DatasetNotFound, data_directory
from .download import DownloadError, get
from .federated import Dataset, FederatedData, PartitionedData, Samples
from .load import federate, load_dataset
from .own_arrays import from_arrays, from_clients
from .own_huggingface import from_huggingface
from .own_torch import from_torch
from .partition import partition
from .reader import DataError
from .synthetic import SyntheticData

__all__ = [
    "DataError",
    "Dataset",
    "DatasetNotFound",
    "DownloadError",
    "FederatedData",
    "PartitionedData",
    "Samples",
    "Status",
    "SyntheticData",
    "data_directory",
    "federate",
    "from_arrays",
    "from_clients",
    "from_huggingface",
    "from_torch",
    "get",
    "list_datasets",
    "load_dataset",
    "partition",
    "status",
]
