"""The first samples of each client: federated data for a trial that must not take long."""

from __future__ import annotations

from ...data.federated import FederatedData, Samples


class FirstSamples(FederatedData):
    def __init__(self, whole: FederatedData, most: int) -> None:
        """`most` of each client; the test set stays whole."""
        self._whole, self._most = whole, most
        self.name, self.num_classes, self.input_shape = whole.name, whole.num_classes, whole.input_shape
        self.sizes, self.test = whole.sizes.clamp(max=most), whole.test
        self.mean, self.std = whole.mean, whole.std

    def client(self, k: int) -> Samples:
        samples = self._whole.client(k)
        return Samples(samples.inputs[: self._most], samples.targets[: self._most])

    def client_test(self, k: int) -> Samples | None:
        return self._whole.client_test(k)

    @property
    def nbytes(self) -> int:
        return self._whole.nbytes
