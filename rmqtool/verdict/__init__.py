"""What a store's state comes to: one verdict and the next step, from what a command has seen and what it has not.

It never reads records itself and never prints; every command that judges a store asks here, so that all say the same.
"""
