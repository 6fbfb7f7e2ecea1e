"""The phone as eyes and hands: commands to a device and their answers."""
