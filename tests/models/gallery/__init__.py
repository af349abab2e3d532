"""Models of transformers with random weights, each in two sizes: gallery.small and gallery.large."""
