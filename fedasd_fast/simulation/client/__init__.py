"""The local training of clients: samples, local step, update, one model or many stacked."""
