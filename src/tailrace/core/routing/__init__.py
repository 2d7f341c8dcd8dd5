"""From what an operator emits to bundles in the lanes of its task."""
