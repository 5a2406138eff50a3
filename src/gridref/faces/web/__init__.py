"""Pages for people, as a server shows them or as they are published in a folder."""
