"""Images of digits, lists of which are added, and the examples made of them."""
