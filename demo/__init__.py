"""Something to observe where there is no GPU: a simulated vLLM, traffic for it, and a tiny real vLLM."""
