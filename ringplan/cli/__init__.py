"""One command a file: read, call, print."""
