package postgres

import (
	"strconv"
	"strings"
	"sync"
)

// texts remembers what statements became. Statements are constant texts, so their number is bounded by the program.
type texts struct{ plain, guarded sync.Map }

// of returns the text with numbered placeholders.
func (t *texts) of(text string) string { return cached(&t.plain, text, numbered) }

// one returns a statement that fails unless text changes exactly one row.
func (t *texts) one(text string) string { return cached(&t.guarded, text, exactlyOne) }

func cached(m *sync.Map, text string, make func(string) string) string {
	if v, ok := m.Load(text); ok {
		return v.(string)
	}
	v := make(text)
	m.Store(text, v)
	return v
}

// exactlyOne lets the server itself judge: a client that reads the count could not stop the commit any more, which is on
// its way with it.
func exactlyOne(text string) string {
	return "with changed as (" + numbered(text) + " returning 1) select 1 / (case when count(*) = 1 then 1 else 0 end) from changed"
}

// numbered turns each ? outside of quotes and comments into $1, $2, …; ?7 becomes $7.
func numbered(text string) string {
	var b strings.Builder
	n := 0
	for i := 0; i < len(text); i++ {
		if end := opaque(text[i:]); end > 0 {
			b.WriteString(text[i : i+end])
			i += end - 1
			continue
		}
		if text[i] != '?' {
			b.WriteByte(text[i])
			continue
		}
		b.WriteByte('$')
		if i+1 == len(text) || text[i+1] < '0' || text[i+1] > '9' {
			n++
			b.WriteString(strconv.Itoa(n))
		}
	}
	return b.String()
}

// opaque returns the length of the quoted part or comment that text begins with, 0 if it begins with neither.
func opaque(text string) int {
	var end string
	skip := 1
	switch {
	case text[0] == '\'' || text[0] == '"':
		end = text[:1]
	case strings.HasPrefix(text, "--"):
		end = "\n"
	case strings.HasPrefix(text, "/*"):
		end, skip = "*/", 2
	default:
		return 0
	}
	i := strings.Index(text[skip:], end)
	if i < 0 {
		return len(text)
	}
	return skip + i + len(end)
}
