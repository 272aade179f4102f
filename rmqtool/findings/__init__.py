"""What checks say: findings, the catalog of all of them, and the account of the bytes that were looked at."""
