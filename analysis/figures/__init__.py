"""The article's figures from the rows of runs, and those that the article lacks."""
