"""How files are laid beside each other: asked for, or worked out of them."""
