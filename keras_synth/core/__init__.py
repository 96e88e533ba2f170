"""What all rooms use: checks of arguments, initializers, projections, slices, gradients, files."""
