"""Decoders tuned on some problems and compared on others."""
