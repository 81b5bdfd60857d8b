"""The stack without Docker: exporter, probe and Prometheus under supervisor, in one folder, without root."""
