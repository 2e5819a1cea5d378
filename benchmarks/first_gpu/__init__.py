"""One report about the CUDA path on a real GPU: build, tests, sanitizer, loss, simulator, measured beside predicted."""
