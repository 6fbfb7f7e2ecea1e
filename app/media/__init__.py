"""Files by token, and files of this host by path. `service.py` has the verbs."""
