package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"soma/internal/neuron"
)

func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return lib.SQLITE_OK
}

// blames reports whether a failed statement is the fault of what it was to write, so that the record alone is refused.
// Everything else (I/O, full disk, damage, memory, locks) concerns the database.
func blames(err error) bool {
	switch code(err) & 0xff {
	case lib.SQLITE_OK, lib.SQLITE_ERROR, lib.SQLITE_CONSTRAINT, lib.SQLITE_MISMATCH, lib.SQLITE_RANGE, lib.SQLITE_TOOBIG:
		return true // OK: the error is of the driver, about an argument
	}
	return false
}

func isUnique(err error) bool { return code(err) == lib.SQLITE_CONSTRAINT_UNIQUE }

func failure(what string, err error) error {
	return fmt.Errorf("cannot %s: %w: %w", what, neuron.ErrStoreFailed, err)
}
