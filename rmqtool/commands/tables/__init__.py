"""Commands that give tables, on Spark where the stores are many or large."""
