"""Sidecar: an engine's `/metrics` goes in, prefix-cache figures under one stable set of names come out."""
