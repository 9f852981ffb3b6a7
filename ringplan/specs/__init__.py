"""What a user writes: model, hardware, mesh, workload, schedule, scenario. Frozen, checked."""
