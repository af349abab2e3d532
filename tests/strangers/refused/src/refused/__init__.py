"""What packages do that torch.compile takes whole, and that a build once refused."""
