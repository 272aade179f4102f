"""Commands that change a store as a plan: shown, asked about, journaled, and rolled back by `undo`."""
