"""Canaries: requests that show whether prefix reuse works, and the verdict on what they show."""
