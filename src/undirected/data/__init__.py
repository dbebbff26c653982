"""Tables: variables with named states, coded rows, and the ways to read them."""
