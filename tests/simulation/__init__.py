"""The whole daemon in one thread under a virtual clock: the ground that seeded worlds are built on."""
