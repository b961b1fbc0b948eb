"""BiC-RL: a checkpoint learns from its own verified replies. ``train`` is the loop; the other files are its parts."""
