"""The report as a page: what stands first, the pages of single runs, and what one needs to cite it."""
