"""Commands that speak to running brokers and name servers."""
