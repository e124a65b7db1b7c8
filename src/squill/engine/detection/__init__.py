"""What `detect` is made of: the automaton of a pattern, and the registers of its instances."""
