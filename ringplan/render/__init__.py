"""Results to something printable. Computes nothing, prints nothing, opens nothing."""
