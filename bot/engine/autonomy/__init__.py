"""Work that Shiftboss begins by itself."""
