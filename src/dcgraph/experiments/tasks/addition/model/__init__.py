"""The paper's model, and the convolution it is built from."""
