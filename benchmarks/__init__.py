"""The measured figures, each a command: ratios within one run, medians with their spread."""
