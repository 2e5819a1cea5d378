"""What a finished run can be asked: flatness, drift, forgetting, cost."""
