"""``dice record``: what the user's own program computes, with which shapes, and what takes its time."""
