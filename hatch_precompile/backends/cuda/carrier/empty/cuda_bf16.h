// Included by torch's header for wrappers, which uses nothing of it; NVIDIA's own needs a toolkit.
