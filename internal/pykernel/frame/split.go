package frame

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// What follows cuts JSON that Read has found valid: an output of a MiB is not scanned again at each level of nesting. Other
// bytes are refused or cut somewhere, and never read beyond.

// members returns the members of an object; of two with one name the last. False where it is no object.
func members(b []byte) (map[string]json.RawMessage, bool) {
	i := space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return nil, false
	}
	found := map[string]json.RawMessage{}
	for i = space(b, i+1); i < len(b) && b[i] != '}'; {
		end := value(b, i)
		colon := space(b, end)
		if b[i] != '"' || end < 0 || colon >= len(b) || b[colon] != ':' {
			return nil, false
		}
		name, ok := text(b[i:end])
		start := space(b, colon+1)
		end = value(b, start)
		if !ok || end < 0 {
			return nil, false
		}
		found[name] = b[start:end:end]
		if i, ok = following(b, end, '}'); !ok {
			return nil, false
		}
	}
	return found, i < len(b)
}

// elements returns the elements of a list. False where it is none.
func elements(b []byte) ([]json.RawMessage, bool) {
	i := space(b, 0)
	if i >= len(b) || b[i] != '[' {
		return nil, false
	}
	var found []json.RawMessage
	for i = space(b, i+1); i < len(b) && b[i] != ']'; {
		end := value(b, i)
		if end < 0 {
			return nil, false
		}
		found = append(found, b[i:end:end])
		ok := false
		if i, ok = following(b, end, ']'); !ok {
			return nil, false
		}
	}
	return found, i < len(b)
}

// following returns where the next item begins, or the closing byte is.
func following(b []byte, i int, closing byte) (int, bool) {
	i = space(b, i)
	switch {
	case i >= len(b):
		return i, false
	case b[i] == ',':
		i = space(b, i+1)
		return i, i < len(b) && b[i] != closing
	}
	return i, b[i] == closing
}

// space returns where the white space that begins at i ends.
func space(b []byte, i int) int {
	for i >= 0 && i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	if i < 0 {
		return len(b)
	}
	return i
}

// value returns the end of the value that begins at i, or -1.
func value(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	begin, depth := i, 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = quoted(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',', ':', ' ', '\n', '\r', '\t':
			switch {
			case depth == 0 && i == begin:
				return -1
			case depth == 0:
				return i
			case b[i] == '}' || b[i] == ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
		i++
	}
	if depth > 0 {
		return -1
	}
	return i
}

// quoted returns the end of the string whose first quote is at i, or -1.
func quoted(b []byte, i int) int {
	for begin := i + 1; ; {
		n := bytes.IndexByte(b[i+1:], '"')
		if n < 0 {
			return -1
		}
		i += n + 1
		escapes := i
		for escapes > begin && b[escapes-1] == '\\' {
			escapes--
		}
		if (i-escapes)%2 == 0 {
			return i + 1
		}
	}
}

var escaped = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// text returns what a string in quotes says; a lone surrogate is the replacement character. False where it is none.
func text(b []byte) (string, bool) {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return "", false
	}
	b = b[1 : len(b)-1]
	next := bytes.IndexByte(b, '\\')
	if next < 0 {
		return string(b), true
	}
	out := make([]byte, 0, len(b))
	for ; next >= 0; next = bytes.IndexByte(b, '\\') {
		out = append(out, b[:next]...)
		b = b[next:]
		if len(b) < 2 {
			return "", false
		}
		if b[1] != 'u' {
			c, ok := escaped[b[1]]
			if !ok {
				return "", false
			}
			out, b = append(out, c), b[2:]
			continue
		}
		r, ok := unit16(b)
		if !ok {
			return "", false
		}
		b = b[6:]
		if utf16.IsSurrogate(r) {
			second, ok := unit16(b)
			if pair := utf16.DecodeRune(r, second); ok && pair != utf8.RuneError {
				r, b = pair, b[6:]
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return string(append(out, b...)), true
}

// unit16 reads the escape of a UTF-16 unit that b begins with.
func unit16(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
