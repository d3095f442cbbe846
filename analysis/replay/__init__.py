"""A page on which one can watch the order in which a text was filled."""
