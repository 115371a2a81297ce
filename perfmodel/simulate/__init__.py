"""The scheduler laboratory: workloads, and engines that serve them request by request, so that formulas meet queues."""
