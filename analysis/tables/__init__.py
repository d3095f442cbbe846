"""The article's tables: measured cells with intervals beside the published ones."""
