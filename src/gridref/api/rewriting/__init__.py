"""Write arrays anew, with other chunks: what to read and write together (`plan`), and doing it."""
