"""How good a learner is: comparisons over data sets, published values, significance, stability."""
