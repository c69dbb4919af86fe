"""Adding handwritten digits: only the sum is known, each digit is a discrete step."""
