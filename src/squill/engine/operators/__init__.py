"""The operators, one file each; importing a module registers its operator."""
