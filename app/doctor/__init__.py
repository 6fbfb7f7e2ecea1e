"""Named checks that say what is wrong and what to type: for the command, and for whoever runs the relay."""
