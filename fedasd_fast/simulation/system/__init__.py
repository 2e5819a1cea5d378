"""The machine: threads, memory, signals, versions."""
