"""Looking only: the trace of a message, the doctor, and what the server is."""
