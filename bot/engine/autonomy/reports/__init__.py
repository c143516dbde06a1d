"""Reports on past work: figures, findings, pictures and their delivery."""
