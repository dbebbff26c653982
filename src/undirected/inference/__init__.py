"""Questions to a network: marginals, most probable states, samples, the partition function."""
