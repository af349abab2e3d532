"""The wheel beside eager code and torch.compile: the parent starts a child for each way."""
