"""The stack in Docker: what has to be true before it starts, and the commands on it; without Docker, the native one."""
