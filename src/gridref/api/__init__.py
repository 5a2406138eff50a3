"""What one call does, whatever face it came through: build, plan, verify."""
