package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"soma/ident"
	"soma/internal/agent/model"
	"soma/internal/lifecycle"
)

// spool is the unsynced file of one attempt: a line for each event of the stream, and a last line {"answer": …} once it is
// complete. It survives the daemon (not the machine), so that a complete answer is never paid for twice.
type spool struct {
	path string
	file *os.File
}

type spoolEnd struct {
	Answer json.RawMessage `json:"answer"`
}

func createSpool(dir string, id ident.ID) (*spool, error) {
	path := filepath.Join(dir, spoolName(id))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot create the spool of an attempt: %w", err)
	}
	return &spool{path: path, file: f}, nil
}

func (s *spool) add(e model.Event) error { return s.line(e) }

func (s *spool) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.file.Write(append(b, '\n'))
	return err
}

// complete writes the last line. Without it the attempt counts as lost after a crash, which is safe, so an error is nothing
// to act on.
func (s *spool) complete(answer []byte) { _ = s.line(spoolEnd{Answer: answer}) }

func (s *spool) close() { _ = s.file.Close() }

// readSpool returns the answer of a complete spool; found is false for one that is missing or cut off.
func readSpool(dir string, id ident.ID) (answer json.RawMessage, found bool, err error) {
	f, err := os.Open(filepath.Join(dir, spoolName(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the spool of an attempt: %w", err)
	}
	defer f.Close()
	var last []byte
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // a line without its end was cut off
			break
		}
		if err != nil {
			return nil, false, fmt.Errorf("cannot read the spool of an attempt: %w", err)
		}
		last = line
	}
	var end spoolEnd
	if !bytes.HasPrefix(last, []byte(`{"answer":`)) || json.Unmarshal(last, &end) != nil || end.Answer == nil {
		return nil, false, nil
	}
	return end.Answer, true, nil
}

// SweepSpools removes spool files that are older than a day: no attempt is that long without an outcome that is committed.
func (h *Host) SweepSpools() error {
	entries, err := os.ReadDir(h.o.Spool)
	if err != nil {
		return fmt.Errorf("cannot sweep spools: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > spoolAge {
			errs = append(errs, os.Remove(filepath.Join(h.o.Spool, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// spentSpools removes the spool files of attempts whose outcome is committed, off the commit path.
type spentSpools struct {
	dir   string
	names chan string
	tasks lifecycle.Tasks
}

// maxSpent bounds what waits to be removed; what does not fit is left to a later sweep.
const maxSpent = 4096

func (s *spentSpools) start(ctx context.Context) error {
	s.names = make(chan string, maxSpent)
	return s.tasks.Go(context.WithoutCancel(ctx), "spools", func(ctx context.Context) error {
		for {
			select {
			case name := <-s.names:
				_ = os.Remove(filepath.Join(s.dir, name)) // a failed removal is left to a later sweep
			case <-ctx.Done():
				return nil
			}
		}
	})
}

func (s *spentSpools) add(name string) {
	select {
	case s.names <- name:
	default:
	}
}

func (s *spentSpools) stop(ctx context.Context) error { return s.tasks.Stop(ctx) }
