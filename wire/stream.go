package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Heartbeat is how often an idle stream carries a comment line; who hears nothing for three of them has lost the daemon.
const Heartbeat = 15 * time.Second

// Cursor is a place in the events of one session: the database's generation and the sequence of the last event seen. The
// zero Cursor stands before the first event; one without a generation is taken to be of the current one.
type Cursor struct {
	Generation string
	Seq        uint64
}

// String returns the id of a stream's event, "generation.seq", or the plain sequence without a generation.
func (c Cursor) String() string {
	if c.Generation == "" {
		return strconv.FormatUint(c.Seq, 10)
	}
	return c.Generation + "." + strconv.FormatUint(c.Seq, 10)
}

// ParseCursor reads what String wrote; "" is the zero Cursor.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return Cursor{}, nil
	}
	generation, number := "", s
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		generation, number = s[:i], s[i+1:]
		if !ValidID(generation) {
			return Cursor{}, fmt.Errorf("invalid cursor: want generation.seq")
		}
	}
	seq, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return Cursor{}, fmt.Errorf("invalid cursor: want generation.seq")
	}
	return Cursor{generation, seq}, nil
}

// Live is a live event: its kind (Delta, CellOutput) and body. It has no sequence and is never truth.
type Live struct {
	Kind string
	Body json.RawMessage
}

// Item is what a subscription to a session hands over. Exactly one field is set.
type Item struct {
	Event *Event // committed, in order
	Live  *Live
	// Dropped says that the reader was slow and has lost items: the committed ones are in the store.
	Dropped bool
	// Hint is what another daemon of the store tells of one of its sessions.
	Hint *Hint
}
