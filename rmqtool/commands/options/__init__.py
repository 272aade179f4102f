"""Options that several commands share, what they mean, and how a shell completes them."""
