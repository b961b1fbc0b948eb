"""Training for DICE: the CuKe data set, SFT, BiC-RL and evaluation."""
