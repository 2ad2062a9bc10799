package sqlrecord

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"soma/ident"
	"soma/session"
)

// Timeout bounds one write.
const Timeout = 5 * time.Second

// Row is one signal as it is stored.
type Row struct {
	Session ident.ID
	// Seq numbers the rows of a session from 1 without a gap; the store gives it.
	Seq int64
	// Kind is the name of the signal's type, or of the value's that it wraps.
	Kind string
	// Op is the run or node of a flow that it belongs to; may be empty.
	Op   string
	Time time.Time
	// Payload is JSON of at most MaxPayload bytes.
	Payload []byte
}

// Store appends rows.
type Store interface {
	// Append gives the row the next number of its session's one sequence and keeps it; if it fails, the number is free
	// again. It may be called from several goroutines.
	Append(ctx context.Context, r Row) error
}

// Recorder writes the signals of one observer. All methods may be called from any goroutine.
type Recorder struct {
	observer *session.Observer
	id       ident.ID
	store    Store
	log      *slog.Logger
	handler  *session.Handler
	written  atomic.Uint64
	failed   atomic.Uint64
}

// Bind starts to write each event that the observer dispatches to its subscribers from now on, in the goroutine that emits
// it, under the session's id. Events that the gate refuses are not dispatched. A store that fails does not disturb the
// emission: the row is lost, counted and logged. log may be nil. The error wraps session.ErrInvalid where observer, id or
// store is missing.
func Bind(o *session.Observer, id ident.ID, store Store, log *slog.Logger) (*Recorder, error) {
	if o == nil || id.IsZero() || store == nil {
		return nil, fmt.Errorf("cannot bind: %w: an observer, a session id and a store are needed", session.ErrInvalid)
	}
	if log == nil {
		log = slog.Default()
	}
	r := &Recorder{observer: o, id: id, store: store, log: log}
	r.handler = session.NewHandler(func(ctx context.Context, value any, _ *session.Observer) (any, error) {
		if s := value.(session.Signal); !isNil(s) {
			r.write(ctx, s)
		}
		return nil, nil
	})
	if err := o.Observe(r.handler, session.Type[session.Signal]()); err != nil {
		return nil, err
	}
	return r, nil
}

// Unbind ends the writing; emissions that are under way may still write. It may be called more than once.
func (r *Recorder) Unbind() { r.observer.Unobserve(r.handler) }

// Written is the number of rows that the store took; Failed that of rows which it did not take.
func (r *Recorder) Written() uint64 { return r.written.Load() }

// Failed is the number of rows that are lost.
func (r *Recorder) Failed() uint64 { return r.failed.Load() }

func (r *Recorder) write(ctx context.Context, s session.Signal) {
	meta := s.Meta()
	row := Row{Session: r.id, Kind: session.KindOf(s), Op: meta.Op, Time: meta.Time, Payload: Payload(s)}
	if row.Time.IsZero() {
		row.Time = time.Now()
	}
	// What has happened is written down although its context may have ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	if err := r.append(ctx, row); err != nil {
		r.failed.Add(1)
		r.log.WarnContext(ctx, "a signal was not written", "session", r.id, "kind", row.Kind, "error", err)
		return
	}
	r.written.Add(1)
}

// isNil says whether s is a nil pointer, which has no envelope.
func isNil(s session.Signal) bool {
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func (r *Recorder) append(ctx context.Context, row Row) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the store panicked: %v", v)
		}
	}()
	return r.store.Append(ctx, row)
}
