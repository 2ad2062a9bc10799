package plain

import "soma/internal/plaintext"

// Cleaner takes out of a stream what would speak to the terminal.
type Cleaner = plaintext.Cleaner

// Clean cleans one whole text.
func Clean(text string) string { return plaintext.Clean(text) }
