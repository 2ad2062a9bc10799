package lineedit

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Kind is what a key means.
type Kind int

// The kinds. Text and Paste carry text.
const (
	Text Kind = iota
	Paste
	Enter
	NewLine // also where the text is whole
	Tab
	Backspace
	Delete
	Left
	Right
	WordLeft
	WordRight
	Up
	Down
	Home
	End
	KillEnd
	KillStart
	KillWord
	KillNextWord
	Yank
	Search
	SearchBack
	Clear
	Cancel
	Interrupt
	Leave // Ctrl-D: also deletes a character
	Suspend
)

// Key is one key, or a run of characters.
type Key struct {
	Kind Kind
	Text string
}

// MaxPaste bounds one paste in bytes; what is longer is cut.
const MaxPaste = 1 << 20

var controls = map[byte]Kind{
	0x01: Home, 0x02: Left, 0x03: Interrupt, 0x04: Leave, 0x05: End, 0x06: Right, 0x07: Cancel, 0x08: Backspace, '\t': Tab,
	'\n': Enter, 0x0b: KillEnd, 0x0c: Clear, '\r': Enter, 0x0e: Down, 0x10: Up, 0x12: Search, 0x13: SearchBack,
	0x15: KillStart, 0x17: KillWord, 0x19: Yank, 0x1a: Suspend, 0x7f: Backspace,
}

// sequences are what follows an escape character.
var sequences = map[string]Kind{
	"[A": Up, "[B": Down, "[C": Right, "[D": Left, "[H": Home, "[F": End,
	"OA": Up, "OB": Down, "OC": Right, "OD": Left, "OH": Home, "OF": End,
	"[1~": Home, "[3~": Delete, "[4~": End, "[7~": Home, "[8~": End,
	"[1;5C": WordRight, "[1;5D": WordLeft, "[1;3C": WordRight, "[1;3D": WordLeft,
	"b": WordLeft, "f": WordRight, "d": KillNextWord, "\x7f": KillWord, "\x08": KillWord, "\r": NewLine, "\n": NewLine,
}

const (
	pasteBegin = "[200~"
	pasteEnd   = "\x1b[201~"
	maxEscape  = 32 // bytes of one sequence
)

// Decoder makes keys of the bytes that a terminal sends. The zero value is ready for use; it is not safe for concurrent use.
type Decoder struct {
	pending []byte
	paste   []byte // what came of a paste; nil outside of one
}

// Feed takes bytes and returns the keys that are complete with them. What no key is known for is left out.
func (d *Decoder) Feed(b []byte) []Key {
	d.pending = append(d.pending, b...)
	var keys []Key
	for len(d.pending) > 0 {
		k, n, ok := d.next()
		if n == 0 {
			break
		}
		d.pending = d.pending[n:]
		if last := len(keys) - 1; ok && k.Kind == Text && last >= 0 && keys[last].Kind == Text {
			keys[last].Text += k.Text
		} else if ok {
			keys = append(keys, k)
		}
	}
	d.pending = bytes.Clone(d.pending)
	return keys
}

// next takes n bytes off; 0: more must come. ok says that they are a key.
func (d *Decoder) next() (k Key, n int, ok bool) {
	if d.paste != nil {
		return d.pasted()
	}
	switch c := d.pending[0]; {
	case c == 0x1b:
		return d.escape()
	case c < ' ' || c == 0x7f:
		kind, ok := controls[c]
		return Key{Kind: kind}, 1, ok
	}
	if !utf8.FullRune(d.pending) {
		return k, 0, false
	}
	r, n := utf8.DecodeRune(d.pending)
	if r == utf8.RuneError && n == 1 || r >= 0x80 && r < 0xa0 {
		return k, n, false
	}
	return Key{Text, string(r)}, n, true
}

func (d *Decoder) escape() (k Key, n int, ok bool) {
	rest := d.pending[1:]
	switch {
	case len(rest) == 0:
		return k, 0, false
	case rest[0] == 0x1b:
		return k, 1, false
	case rest[0] != '[' && rest[0] != 'O':
		kind, ok := sequences[string(rest[:1])]
		if !ok && rest[0] < ' ' {
			return k, 1, false // Escape alone means nothing, and Ctrl-C after it what it always does
		}
		return Key{Kind: kind}, 2, ok
	}
	for i := 1; i < len(rest); i++ {
		if i > maxEscape || rest[i] < ' ' || rest[i] > '~' {
			return k, 1 + i, false
		}
		if rest[i] < '@' {
			continue
		}
		sequence := string(rest[:i+1])
		if sequence == pasteBegin {
			d.paste = []byte{}
			return k, 2 + i, false
		}
		kind, ok := sequences[sequence]
		return Key{Kind: kind}, 2 + i, ok
	}
	return k, 0, false
}

// pasted takes what has come of a paste.
func (d *Decoder) pasted() (k Key, n int, ok bool) {
	if end := bytes.Index(d.pending, []byte(pasteEnd)); end >= 0 {
		d.keep(d.pending[:end])
		k = Key{Paste, Clean(string(d.paste))}
		d.paste = nil
		return k, end + len(pasteEnd), k.Text != ""
	}
	n = len(d.pending)
	if i := bytes.LastIndexByte(d.pending, 0x1b); i >= 0 && n-i < len(pasteEnd) {
		n = i
	}
	d.keep(d.pending[:n])
	return k, n, false
}

func (d *Decoder) keep(b []byte) {
	d.paste = append(d.paste, b[:min(len(b), MaxPaste-len(d.paste))]...)
}

// Clean makes a text one that can be edited: valid UTF-8 with plain line ends, and of the control characters only tabs.
func Clean(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(text, ""))
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}
