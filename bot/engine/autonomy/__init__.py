"""What the program does by itself: reports on its work."""
