"""Several processes on one or more machines: process group, rendezvous, sharding, worker pool."""
