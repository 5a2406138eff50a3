"""The operations that each face calls: build, plan, verify, and the verbs of a catalog."""
