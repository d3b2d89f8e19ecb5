"""Generated from proto/ by `make proto`; not edited."""
