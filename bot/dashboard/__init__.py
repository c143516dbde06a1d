"""Pages and HTTP API over `handlers.ports.HandlerServices`. `bot.app.dashboard` loads it with the
first request."""
