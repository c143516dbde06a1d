"""The heartbeat: looks through HEARTBEAT.md now and then, and does or says what is due."""
