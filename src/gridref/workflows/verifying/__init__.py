"""What is read, held against what the original readers read."""
