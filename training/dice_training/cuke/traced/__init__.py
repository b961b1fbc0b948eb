"""The teacher of whole tasks: traces a PyTorch module and writes CUDA for what it computes."""

INVENTED = "invented"
"""The name of the tasks that ``invented`` makes up."""
UNWRITTEN = "unwritten"
"""The verdict on a task that the teacher cannot write."""
