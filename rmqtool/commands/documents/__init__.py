"""Commands that write what is known of a store into a file for people who do not have it at hand."""
