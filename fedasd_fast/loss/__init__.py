"""The ASD loss: functions, module, teacher cache, and the readable reference they are tested against."""
