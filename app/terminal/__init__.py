"""Shells that outlive sockets: where they run, who watches them, and what of their output a device gets."""
