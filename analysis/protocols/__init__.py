"""Published protocols beside the runs that have their settings."""
