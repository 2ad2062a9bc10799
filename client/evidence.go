package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"soma/wire"
)

// journalPath is the path of a neuron's journal; neuron is OWNER/KIND/KEY. The error is a *wire.Error with bad_request.
func journalPath(neuron string) (string, error) {
	parts := strings.Split(neuron, "/")
	if len(parts) != 3 || slices.ContainsFunc(parts, func(s string) bool { return s == "" || s == "." || s == ".." }) {
		return "", wire.Errorf(wire.BadRequest, "cannot show a journal: %.256q names no neuron", neuron).Do("write it as OWNER/KIND/KEY, such as me/process/1")
	}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/v1/neurons/" + strings.Join(parts, "/") + "/journal", nil
}

// Journal returns a page of a neuron's feed (wire.FeedIn, wire.FeedOut) after a sequence; limit 0 means wire.DefaultLimit.
// Refusals: wire.BadRequest for what names no neuron, wire.NotFound for one that was never given anything.
func (c *Client) Journal(ctx context.Context, neuron, feed string, after uint64, limit int) (wire.Journal, error) {
	var out wire.Journal
	path, err := journalPath(neuron)
	if err != nil {
		return out, err
	}
	return out, c.get(ctx, &out, path, "feed", feed, "after", number(after), "limit", number(limit))
}

// JournalFrame is what a journal's stream brings: an entry or a reset.
type JournalFrame struct {
	Entry *wire.JournalEntry
	Reset *wire.JournalReset // what lies before its First is not kept any more
	// Cursor is where to go on from once this frame has been dealt with.
	Cursor wire.Cursor
}

// FollowJournal follows a feed of a neuron after a cursor (the zero Cursor: from the first entry that is kept) and gives each
// frame to fn from this goroutine: no entry is left out but behind a reset, and none comes twice. It returns the cursor after
// the last frame that fn took without an error; its errors are those of Follow.
func (c *Client) FollowJournal(ctx context.Context, neuron, feed string, from wire.Cursor, fn func(JournalFrame) error) (wire.Cursor, error) {
	at := from
	path, err := journalPath(neuron)
	if err != nil {
		return at, err
	}
	err = c.stream(ctx, path+"/entries?"+url.Values{"feed": {feed}}.Encode(), from, func(kind, id string, data []byte) (err error) {
		f := JournalFrame{Cursor: at}
		switch kind {
		case wire.DaemonStopping:
			return ErrStopped
		case wire.StreamRefused:
			return refused(data)
		case wire.JournalEntryAdded:
			f.Entry = new(wire.JournalEntry)
			err = decode(data, f.Entry)
		case wire.Reset:
			f.Reset = new(wire.JournalReset)
			err = decode(data, f.Reset)
		default:
			return nil
		}
		if err == nil {
			f.Cursor, err = wire.ParseCursor(id)
		}
		if err == nil {
			err = fn(f)
		}
		if err == nil {
			at = f.Cursor
		}
		return err
	})
	return at, err
}

// DeadLetters returns a page of dead letters, sorted by id; after is the Next of the page before, or "".
func (c *Client) DeadLetters(ctx context.Context, after string, limit int) (wire.List[wire.DeadLetter], error) {
	var out wire.List[wire.DeadLetter]
	return out, c.get(ctx, &out, "/v1/deadletters", "after", after, "limit", number(limit))
}

// letterPath is the path of a dead letter. The error is a *wire.Error with not_found for what can be no id of one.
func letterPath(id string) (string, error) {
	if !wire.ValidID(id) {
		return "", wire.Errorf(wire.NotFound, "cannot find a dead letter %.64q", id).Do("see soma deadletters")
	}
	return "/v1/deadletters/" + id, nil
}

// Redrive sends the delivery of a dead letter again, under a new id. Refusal: wire.NotFound, also for one that was re-driven
// or discarded before: after a lost answer that may have been this call.
func (c *Client) Redrive(ctx context.Context, id string) (wire.Redriven, error) {
	var out wire.Redriven
	path, err := letterPath(id)
	if err != nil {
		return out, err
	}
	return out, c.do(ctx, http.MethodPut, &out, nil, path+"/redrive")
}

// Discard deletes a dead letter. Refusal: as for Redrive.
func (c *Client) Discard(ctx context.Context, id string) error {
	path, err := letterPath(id)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodDelete, new(wire.Discarded), nil, path)
}

// Trace returns what is known of the correlation to which a delivery, execution, input, cell, session or process belongs.
// Refusal: wire.NotFound.
func (c *Client) Trace(ctx context.Context, id string) (wire.Trace, error) {
	var out wire.Trace
	if !wire.ValidID(id) {
		return out, wire.Errorf(wire.NotFound, "cannot trace %.128q: it is no id", id).
			Do("give a pid or the id of a delivery, input, execution, cell or session")
	}
	return out, c.get(ctx, &out, "/v1/traces/"+id)
}
