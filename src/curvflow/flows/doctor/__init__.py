"""What a machine has for curvflow, what it lacks, and how to mend that."""
