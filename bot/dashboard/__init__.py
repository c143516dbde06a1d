"""Pages and HTTP API over `handlers.ports.HandlerServices`. `bot.app.channels` loads it with the
first request."""
