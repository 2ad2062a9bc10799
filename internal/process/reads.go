package process

import (
	"context"
	"errors"
	"unicode/utf8"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/cells"
	"soma/message"
	"soma/wire"
)

// maxPage bounds every list; output pages have a bound of their own in bytes.
const (
	maxPage       = wire.MaxLimit + 1 // a caller asks for one more to see whether there are more
	maxOutputPage = wire.MaxOutput
)

// rows reads committed rows under a context.
type rows struct {
	ctx    context.Context
	reader neuron.Reader
}

// Query reads; it makes rows a querier.
func (r rows) Query(sql string, args []any, row func(scan func(...any) error) error) error {
	return r.reader.Query(r.ctx, sql, args, row)
}

func (h *Host) rows(ctx context.Context) rows { return rows{ctx, h.o.Reader} }

func page(limit int) int {
	if limit <= 0 || limit > maxPage {
		return maxPage
	}
	return limit
}

const sessionColumns = `s.id, s.kind, s.workspace, s.model, s.agent, s.python, s.keep, s.state, ` + newestEvent + `, s.created_at, s.closed_at,
coalesce((select max(p.pid) from process p where p.session = s.id), 0), s.branch`

func scanSession(scan func(...any) error) (wire.Session, bool, error) {
	var s wire.Session
	var keep bool
	var created int64
	var closed *int64
	var branch []byte
	err := scan(&s.ID, &s.Kind, &s.Workspace, &s.Model, &s.Agent, &s.Python, &keep, &s.State, &s.LastEvent, &created, &closed, &s.PID, &branch)
	if err == nil {
		s.Branch, err = branchText(branch)
	}
	s.CreatedAt, s.ClosedAt = fromMicro(created), fromMicroPtr(closed)
	return s, keep, err
}

func (h *Host) session(ctx context.Context, id string) (s *wire.Session, keep bool, err error) {
	err = h.rows(ctx).Query(`select `+sessionColumns+` from session s where s.id = ?`, []any{id}, func(scan func(...any) error) error {
		got, k, err := scanSession(scan)
		got.Node = h.nodeOf(got.ID)
		s, keep = &got, k
		return err
	})
	return s, keep, err
}

// Session returns a session; the error is a *wire.Error with code not_found where there is none.
func (h *Host) Session(ctx context.Context, id string) (wire.Session, error) {
	s, _, err := h.session(ctx, id)
	if err != nil {
		return wire.Session{}, err
	}
	if s == nil {
		return wire.Session{}, h.absent(ctx, id)
	}
	return *s, nil
}

// absent says of a session that has no row whether there was one.
func (h *Host) absent(ctx context.Context, id string) error {
	gone, err := wasRemoved(h.rows(ctx), id)
	switch {
	case err != nil:
		return err
	case gone:
		return removed(id)
	}
	return wire.Errorf(wire.NotFound, "there is no session %s", id)
}

// missing makes a refusal that there is no such session say whether there was one.
func (h *Host) missing(ctx context.Context, id string, err error) error {
	var refused *wire.Error
	if errors.As(err, &refused) && (refused.Code == wire.NotFound || refused.Code == wire.Gone) {
		return h.absent(ctx, id)
	}
	return err
}

func removed(id string) error {
	return wire.Errorf(wire.Gone, "session %s was removed", id).Do("open another one")
}

// Sessions lists sessions in order of their ids.
func (h *Host) Sessions(ctx context.Context, f wire.SessionFilter) ([]wire.Session, error) {
	list := []wire.Session{}
	err := h.rows(ctx).Query(`select `+sessionColumns+` from session s where (? = '' or s.workspace = ?) and (? = '' or s.kind = ?)
and s.id > ? order by s.id limit ?`,
		[]any{f.Workspace, f.Workspace, f.Kind, f.Kind, f.After, int64(page(f.Limit))}, func(scan func(...any) error) error {
			s, _, err := scanSession(scan)
			s.Node = h.nodeOf(s.ID)
			list = append(list, s)
			return err
		})
	return list, err
}

func branchText(b []byte) (string, error) {
	id, err := ident.FromBytes(b)
	return id.String(), err
}

const processColumns = `p.pid, p.session, p.parent, p.agent, p.model, p.workspace, p.state, p.reason, p.detail, p.since, p.exit_code,
p.steps, p.cells, p.tokens, p.cost, p.estimated, p.created_at, p.ended_at,
(select count(*) from input i where i.session = p.session and i.pid = p.pid and i.state = 'admitted'), p.branch`

func scanProcess(scan func(...any) error) (wire.Process, error) {
	var p wire.Process
	var since, created int64
	var ended *int64
	var code int
	var branch []byte
	err := scan(&p.PID, &p.Session, &p.Parent, &p.Agent, &p.Model, &p.Workspace, &p.State.State, &p.Reason, &p.Detail, &since, &code,
		&p.Steps, &p.Cells, &p.Tokens, &p.Cost, &p.Estimated, &created, &ended, &p.Inputs, &branch)
	if err == nil {
		p.Branch, err = branchText(branch)
	}
	p.Since, p.CreatedAt, p.EndedAt = fromMicro(since), fromMicro(created), fromMicroPtr(ended)
	if ended != nil {
		p.ExitCode = &code
	}
	return p, err
}

// Processes lists processes in order of pid: live ones, with All ended ones too.
func (h *Host) Processes(ctx context.Context, f wire.ProcessFilter) ([]wire.Process, error) {
	list := []wire.Process{}
	live := ` and p.ended_at is null`
	if f.All {
		live = ""
	}
	err := h.rows(ctx).Query(`select `+processColumns+` from process p where p.pid > ? and (? = '' or p.workspace = ?)
and (? = '' or p.session = ?)`+live+` order by p.pid limit ?`,
		[]any{int64(f.After), f.Workspace, f.Workspace, f.Session, f.Session, int64(page(f.Limit))}, func(scan func(...any) error) error {
			p, err := scanProcess(scan)
			p.Node = h.nodeOf(p.Session)
			list = append(list, p)
			return err
		})
	return list, err
}

// Process returns one process; the error is a *wire.Error with code not_found where there is none.
func (h *Host) Process(ctx context.Context, pid uint64) (wire.Process, error) {
	var found *wire.Process
	err := h.rows(ctx).Query(`select `+processColumns+` from process p where p.pid = ?`, []any{int64(pid)}, func(scan func(...any) error) error {
		p, err := scanProcess(scan)
		p.Node = h.nodeOf(p.Session)
		found = &p
		return err
	})
	if err == nil && found == nil {
		err = wire.Errorf(wire.NotFound, "there is no process %d", pid)
	}
	if err != nil {
		return wire.Process{}, err
	}
	return *found, nil
}

// Messages returns the transcript of a process's branch after a sequence.
func (h *Host) Messages(ctx context.Context, pid, after uint64, limit int) ([]wire.Message, error) {
	if _, err := h.Process(ctx, pid); err != nil {
		return nil, err
	}
	list := []wire.Message{}
	err := h.rows(ctx).Query(`select `+messageColumns+` where m.branch = (select branch from process where pid = ?) and m.seq > ?
order by m.seq limit ?`, []any{int64(pid), int64(after), int64(page(limit))}, func(scan func(...any) error) error {
		m, err := scanMessage(scan)
		list = append(list, m)
		return err
	})
	return list, err
}

// messagesBetween reads the messages of a branch after one sequence through another, and the size of their bodies.
func (h *Host) messagesBetween(ctx context.Context, branch ident.ID, after, through uint64) (list []message.Message, bytes int, err error) {
	err = h.o.Reader.Query(ctx, `select length(coalesce(m.body, c.bytes)), `+messageColumns+` where m.branch = ? and m.seq > ? and m.seq <= ? order by m.seq`,
		[]any{branch[:], int64(after), int64(through)}, func(scan func(...any) error) error {
			var n int
			m, err := scanMessage(func(dest ...any) error { return scan(append([]any{&n}, dest...)...) })
			list, bytes = append(list, m.Message), bytes+n
			return err
		})
	return list, bytes, err
}

// Ledger returns the provider attempts of a process after the given row id.
func (h *Host) Ledger(ctx context.Context, pid uint64, after string, limit int) ([]wire.LedgerRow, error) {
	if _, err := h.Process(ctx, pid); err != nil {
		return nil, err
	}
	var from ident.ID
	if err := from.UnmarshalText([]byte(after)); err != nil {
		return nil, wire.Errorf(wire.BadRequest, "after is no ledger id")
	}
	list := []wire.LedgerRow{}
	err := h.rows(ctx).Query(`select id, pid, provider, model, step, attempt, outcome, input, cache_read, cache_write, output, reasoning,
cost, estimated, started_at, ended_at from ledger where pid = ? and id > ? order by id limit ?`,
		[]any{int64(pid), from[:], int64(page(limit))}, func(scan func(...any) error) error {
			var r wire.LedgerRow
			var id []byte
			var started, ended int64
			u := &r.Usage
			err := scan(&id, &r.PID, &r.Provider, &r.Model, &r.Step, &r.Attempt, &r.Outcome, &u.Input, &u.CacheRead, &u.CacheWrite,
				&u.Output, &u.Reasoning, &r.Cost, &u.Estimated, &started, &ended)
			if err != nil {
				return err
			}
			key, err := ident.FromBytes(id)
			r.ID, r.StartedAt, r.EndedAt = key.String(), fromMicro(started), fromMicro(ended)
			list = append(list, r)
			return err
		})
	return list, err
}

// Events returns committed events of a session after a sequence, with the first and last sequence that there is.
func (h *Host) Events(ctx context.Context, session string, after uint64, limit int) (events []wire.Event, first, last uint64, err error) {
	r := h.rows(ctx)
	found := false
	err = r.Query(`select `+newestEvent+`, (select coalesce(min(seq), 1) from event where session = s.id) from session s where id = ?`,
		[]any{session}, func(scan func(...any) error) error { found = true; return scan(&last, &first) })
	if err == nil && !found {
		err = h.absent(ctx, session)
	}
	if err != nil {
		return nil, 0, 0, err
	}
	err = r.Query(`select seq, pid, kind, body, at from event where session = ? and seq > ? order by seq limit ?`,
		[]any{session, int64(after), int64(page(limit))}, func(scan func(...any) error) error {
			e := wire.Event{Session: session}
			var at int64
			var body []byte
			if err := scan(&e.Seq, &e.PID, &e.Kind, &body, &at); err != nil {
				return err
			}
			e.At, e.Body = fromMicro(at), body
			events = append(events, e)
			return nil
		})
	return events, first, last, err
}

// Cell returns one cell; the error is a *wire.Error with code not_found where there is none.
func (h *Host) Cell(ctx context.Context, id string) (wire.Cell, error) {
	c, _, err := cells.Find(h.rows(ctx), id)
	if err == nil && c == nil {
		err = wire.Errorf(wire.NotFound, "there is no cell %s", id)
	}
	if err != nil {
		return wire.Cell{}, err
	}
	return *c, nil
}

// Output returns a page of a cell's output: at most limit bytes, but never less than a character; one that begins within a
// character begins with the next. A page never crosses from what was kept of the beginning to what was kept of the end; one
// that lies between them is empty with Kept false, and Next is where the end begins. Errors: *wire.Error with not_found, or
// bad_request for an offset outside.
func (h *Host) Output(ctx context.Context, cell string, offset, limit int64) (wire.OutputPage, error) {
	if limit <= 0 || limit > maxOutputPage {
		limit = maxOutputPage
	}
	var found *wire.Cell
	var body cells.Body
	var content []byte
	err := h.rows(ctx).Query(`select `+cells.Columns+`, content from cell where id = ?`, []any{cell}, func(scan func(...any) error) error {
		c, b, err := cells.Scan(func(dest ...any) error { return scan(append(dest, &content)...) })
		found, body = &c, b
		return err
	})
	if err != nil {
		return wire.OutputPage{}, err
	}
	if found == nil {
		return wire.OutputPage{}, wire.Errorf(wire.NotFound, "there is no cell %s", cell)
	}
	p := wire.OutputPage{Cell: cell, Offset: offset, Next: offset, Size: found.OutputSize, Kept: true}
	switch {
	case offset < 0 || offset > p.Size:
		return p, wire.Errorf(wire.BadRequest, "offset %d is not within the output's %d bytes", offset, p.Size)
	case found.State != cells.Ended:
		return p, nil
	case offset == p.Size:
		p.EOF = true
		return p, nil
	}
	var kept int64
	err = h.rows(ctx).Query(`select size from content where id = ?`, []any{content}, func(scan func(...any) error) error { return scan(&kept) })
	if err != nil {
		return p, err
	}
	tail := p.Size - (kept - body.Head) // offset in the output where the kept end begins
	at, end := offset, body.Head        // within the content
	switch {
	case offset >= tail:
		at, end = body.Head+offset-tail, kept
	case offset >= body.Head:
		p.Kept, p.Next = false, tail
		return p, nil
	}
	var b []byte
	// Some bytes more, for the characters at both borders.
	err = h.rows(ctx).Query(`select substr(bytes, ?, ?) from content where id = ?`, []any{at + 1, min(limit+2*utf8.UTFMax, end-at), content},
		func(scan func(...any) error) error { return scan(&b) })
	if err != nil {
		return p, err
	}
	skipped := 0
	for skipped < len(b) && !utf8.RuneStart(b[skipped]) {
		skipped++
	}
	b = b[skipped:]
	n := min(int(limit), len(b))
	for n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	if n == 0 {
		_, n = utf8.DecodeRune(b)
	}
	p.Text, p.Next = string(b[:n]), offset+int64(skipped+n)
	p.EOF = p.Next == p.Size
	return p, nil
}

// Counts returns how many processes are in each state, without ended ones.
func (h *Host) Counts(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	err := h.rows(ctx).Query(`select state, count(*) from process where ended_at is null group by state`, nil, func(scan func(...any) error) error {
		var state string
		var n int
		err := scan(&state, &n)
		counts[state] = n
		return err
	})
	return counts, err
}

// LiveTexts returns what the running attempts of a session have shown so far, each as one delta from offset 0.
func (h *Host) LiveTexts(session string) []wire.DeltaEvent { return h.live.Of(session) }

// SessionOfCell returns the session of a running cell, "" where there is none.
func (h *Host) SessionOfCell(cell string) string { return h.cells.Session(cell) }

// look returns a process as of the last commit that this daemon has told of. A list that was read meanwhile may already
// know of a later one.
func (h *Host) look(ctx context.Context, pid uint64) (wire.Process, error) {
	p, ok, changes := h.shown.Get(ident.PID(pid))
	if ok {
		return p, nil
	}
	p, err := h.Process(ctx, pid)
	if err == nil {
		h.shown.Put(p, changes)
	}
	return p, err
}
