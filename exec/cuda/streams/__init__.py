"""AdapCC's transmission contexts: streams, events and transports between devices."""
