"""Pages for people: what a server shows to browsers. Made of values; nothing is sent here."""
