"""What is wrong with a store: findings out of one catalogue.

Every check is a map over pieces and an associative merge. Damage is data here, never an exception, and a check never
mends what it found.
"""
