package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/internal/neuron"
)

var errClosed = errors.New("the store is closed")

// SQLSTATEs that this room acts on.
const (
	divisionByZero  = "22012" // how the fence and guards fail
	uniqueViolation = "23505"
	planChanged     = "0A000"
	noStatement     = "26000"
	readOnly        = "25006"
	lockTimeout     = "55P03"
	cancelled       = "57014"
	tooMany         = "53300"
)

// fault is what a failed statement means for its group.
type fault uint8

const (
	blamed    fault = iota // what the record wanted to write is at fault
	transient              // the same group may go through in a moment; nothing of it was applied
	unknown                // whether it was applied is open
	fatal                  // the database cannot go on
)

// judge tells them apart for an error that came while results were read; atSync: those of all statements are there.
func judge(err error, atSync bool) fault {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		if pgconn.SafeToRetry(err) {
			return transient
		}
		return unknown
	}
	if severe(pe) {
		// The server dies or ends this session. A group is committed after its last statement only.
		if atSync {
			return unknown
		}
		return transient
	}
	switch pe.Code {
	case lockTimeout, cancelled, planChanged, noStatement:
		return transient
	case readOnly:
		return fatal
	}
	switch pe.Code[:min(2, len(pe.Code))] {
	case "21", "22", "23", "42", "44", "54", "P0":
		return blamed
	case "40", "57":
		return transient
	}
	return fatal
}

// unreachable judges an error of connecting: a server that is away, starts, or has no room may be there in a moment, one that
// refuses this program will not.
func unreachable(err error) fault {
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code != tooMany && pe.Code[:2] != "57" {
		return fatal
	}
	return transient
}

// connect opens a connection. Errors: *connectError.
func connect(ctx context.Context, config *pgconn.Config) (*pgconn.PgConn, error) {
	c, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, &connectError{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), err}
	}
	return c, nil
}

// connectError tells in one line why a server could not be reached or refused; the driver's own error has a line for each
// attempt. It is a neuron.ErrStoreAway where the server may be there in a moment.
type connectError struct {
	server string
	err    error
}

func (e *connectError) Error() string {
	var (
		refused *pgconn.PgError
		network *net.OpError
	)
	why := e.err
	switch {
	case errors.As(e.err, &refused):
		return fmt.Sprintf("cannot connect to %s: %s", e.server, refused.Message)
	case errors.Is(e.err, context.DeadlineExceeded):
		why = context.DeadlineExceeded
	case errors.As(e.err, &network):
		why = network.Err
	}
	return fmt.Sprintf("cannot connect to %s: %s", e.server, strings.Join(strings.Fields(why.Error()), " "))
}

func (e *connectError) Unwrap() error { return e.err }

// Is reports whether target is neuron.ErrStoreAway and fits.
func (e *connectError) Is(target error) bool {
	return target == neuron.ErrStoreAway && unreachable(e.err) == transient && !errors.Is(e.err, context.Canceled)
}

func severe(pe *pgconn.PgError) bool {
	return pe.SeverityUnlocalized == "FATAL" || pe.SeverityUnlocalized == "PANIC"
}

// broken reports whether the connection is gone, so that nothing more is known of what ran on it.
func broken(err error) bool {
	var pe *pgconn.PgError
	return !errors.As(err, &pe) || severe(pe)
}

func hasCode(err error, code string) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == code
}

func failure(what string, err error) error {
	return fmt.Errorf("cannot %s: %w: %w", what, neuron.ErrStoreFailed, err)
}
