"""How lanes run: requests, the compiled loop, the host's loop, checkpoints, devices, processes."""
