"""A file -> its arrays and groups, as references into it. One folder a format."""
