package plaintext

import (
	"strings"
	"unicode"
)

// Cleaner takes out of a stream what would move the cursor, change colours or speak to the terminal: models and cells must
// not do that. A carriage return becomes the end of a line. The zero value is ready; sequences may be cut anywhere between
// two calls.
type Cleaner struct {
	state cleanState
	back  bool
}

type cleanState int

const (
	cleanText    cleanState = iota
	cleanEscape             // after ESC
	cleanControl            // in a control sequence, to its final byte
	cleanString             // in a string for the terminal (title, clipboard …), to BEL or ESC \
)

// Clean returns what of the next part of the stream may be shown.
func (c *Cleaner) Clean(text string) string {
	var b strings.Builder
	for _, r := range text {
		if c.back && r != '\n' {
			b.WriteByte('\n')
		}
		c.back = false
		switch c.state {
		case cleanEscape:
			switch {
			case r == '[':
				c.state = cleanControl
			case strings.ContainsRune("]P^_X", r):
				c.state = cleanString
			case r >= 0x20 && r <= 0x2f: // more of the sequence follows
			default:
				c.state = cleanText
			}
		case cleanControl:
			if r >= 0x40 && r <= 0x7e {
				c.state = cleanText
			} else if r < 0x20 {
				c.state = cleanText
				c.text(&b, r)
			}
		case cleanString:
			switch r {
			case '\a', 0x9c:
				c.state = cleanText
			case 0x1b:
				c.state = cleanEscape // its backslash ends it
			case '\n':
				c.state = cleanText // no such string holds one: show what follows
				b.WriteByte('\n')
			}
		default:
			c.text(&b, r)
		}
	}
	return b.String()
}

func (c *Cleaner) text(b *strings.Builder, r rune) {
	switch {
	case r == 0x1b:
		c.state = cleanEscape
	case r == '\r':
		c.back = true
	case r == '\n' || r == '\t':
		b.WriteRune(r)
	case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // and those that turn the direction
	default:
		b.WriteRune(r)
	}
}

// Clean cleans one whole text.
func Clean(text string) string { return new(Cleaner).Clean(text) }
