"""Datasets: downloading, reading, partitioning among clients, and transforms of batches."""

from .availability import Status, list_datasets, status
from .directory import DatasetNotFound, data_directory
from .download import DownloadError, get
from .federated import Dataset, FederatedData, PartitionedData, Samples
from .load import federate, load_dataset
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
    "get",
    "list_datasets",
    "load_dataset",
    "partition",
    "status",
]
