package schema

import (
	"encoding/json"
	"fmt"
	"time"
)

// Sealed is the row of meta that keeps daemons from a store; its value is a [Seal] as JSON.
const Sealed = "sealed"

// Kind says what a sealed store is.
type Kind string

// The kinds.
const (
	// Copying: a copy into the store has begun and has not ended.
	Copying Kind = "copying"
	// BackingUp: a backup that has not ended.
	BackingUp Kind = "backing up"
	// Backup: a whole backup. It is not to be written to.
	Backup Kind = "backup"
)

// Seal says why no daemon may use a store.
type Seal struct {
	Kind Kind      `json:"kind"`
	From string    `json:"from"` // what is copied, in words without a secret
	At   time.Time `json:"at"`
	// Generation is the one of the store that is copied.
	Generation string `json:"generation,omitempty"`
	// Epoch is the highest that its nodes had, of a backup.
	Epoch uint64 `json:"epoch,omitempty"`
}

// Text is the form in which a seal lies in the store.
func (s Seal) Text() string {
	b, _ := json.Marshal(s) // strings and times of our own always marshal
	return string(b)
}

// ParseSeal reads what Text has written; a text that it cannot read is a seal all the same.
func ParseSeal(text string) Seal {
	var s Seal
	if json.Unmarshal([]byte(text), &s) != nil || s.Kind == "" {
		return Seal{Kind: Copying, From: "an unknown store"}
	}
	return s
}

// SealedError reports a store that no daemon may use. Its text says what to do.
type SealedError struct{ Seal Seal }

func (e *SealedError) Error() string {
	if e.Seal.Kind == Backup {
		return fmt.Sprintf("it is a backup, of %s at %s: soma restore makes a store of it", e.Seal.From, e.Seal.At.Format(time.RFC3339))
	}
	return fmt.Sprintf("it is the rest of a copy of %s that was begun at %s and did not end: run soma store copy again, or remove it",
		e.Seal.From, e.Seal.At.Format(time.RFC3339))
}
