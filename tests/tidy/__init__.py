"""What a reviewer would otherwise have to repeat: sizes, names, layers, documents."""
