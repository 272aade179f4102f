"""Plans `recover`: repairs the effects of a crash as far as the log proves them."""
