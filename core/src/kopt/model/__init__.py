"""The nouns: what one stage hands to the next."""
