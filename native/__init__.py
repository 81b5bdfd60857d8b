"""The stack without Docker: exporter and Prometheus under supervisor, in one folder, without root."""
