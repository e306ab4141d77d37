"""What a checkpoint holds: records, log, header, history, events."""
