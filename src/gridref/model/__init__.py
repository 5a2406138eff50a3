"""The pure model: grids, projections, encodings, manifests, arrays. No I/O."""
