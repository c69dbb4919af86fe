"""The data of ListOps: the language, the generator, the depth-critical expressions, the sets."""
