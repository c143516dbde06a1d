"""The parts by which Shiftboss looks after itself."""
