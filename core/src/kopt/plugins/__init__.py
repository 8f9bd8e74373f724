"""The plugin layer: catalogue, loader, manager."""
