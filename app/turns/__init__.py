"""One turn of a conversation: what is stored of it, how its events fold into a state, and who watches it."""
