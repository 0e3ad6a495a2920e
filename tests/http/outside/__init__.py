"""What others try on the HTTP API: made-up requests, generated clients, every kind of token."""
