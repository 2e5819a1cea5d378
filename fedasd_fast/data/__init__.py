"""Datasets, their partition among clients, and transforms of batches."""

from .arrays import DataError
from .download import DownloadError, get
from .federated import Dataset, FederatedData, PartitionedData, Samples
from .listing import Status, list_datasets, status
from .load import federate, load_dataset
from .partition import partition
from .places import DatasetNotFound, data_directory
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
