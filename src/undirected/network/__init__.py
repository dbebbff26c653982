"""Networks: a domain, features and weights."""
