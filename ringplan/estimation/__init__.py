"""One layout: specs to numbers to formulas. No formula lives here."""
