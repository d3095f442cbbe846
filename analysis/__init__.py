"""From the rows of runs to tables, figures, a report and a replay. Reads parquet only; loads no torch."""
