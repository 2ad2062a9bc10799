package exchange

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"soma/ident"
	"soma/session"
)

// everybody are the names that the branch knows, without its own.
func (d *desk) everybody() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if d.names[name] != d.owner {
			all = append(all, name)
		}
	}
	return all
}

// address splits names into those that mail can be sent to and the reasons why it cannot to the others.
func (d *desk) address(wanted []string) ([]string, map[string]string) {
	var good []string
	refused := map[string]string{}
	for _, name := range wanted {
		id, ok := d.names[name]
		switch {
		case slices.Contains(good, name):
		case !ok:
			refused[name] = "unknown name; known are " + strings.Join(slices.Sorted(maps.Keys(d.names)), ", ")
		case !d.messenger.exchange.Has(id):
			refused[name] = "has no mailbox"
		case d.messenger.State(id) == Finished:
			refused[name] = "has finished"
		default:
			good = append(good, name)
		}
	}
	return good, refused
}

// post queues the text for each name that it can be sent to.
func (d *desk) post(wanted []string, text, channel string) Sent {
	good, refused := d.address(wanted)
	s := Sent{To: []string{}, Refused: refused}
	for _, name := range good {
		if _, err := d.messenger.exchange.Send(d.owner, d.names[name], text, channel); err != nil {
			refused[name] = err.Error()
			continue
		}
		if channel == ChannelWakeup {
			d.messenger.change(d.names[name], wakeup)
		}
		s.To = append(s.To, name)
	}
	s.State = d.messenger.State(d.owner).String()
	return s
}

// works says that the branch goes on, which a finished one cannot.
func (d *desk) works() error {
	if s, ok := d.messenger.change(d.owner, called); !ok {
		return fmt.Errorf("%w call: this branch has finished (it is %s)", session.ErrInvalid, s)
	}
	return nil
}

func (d *desk) send(r request, channel string) (any, error) {
	if len(r.To) == 0 {
		return nil, fmt.Errorf("%w arguments: %s needs a name in \"to\"", session.ErrInvalid, r.Action)
	}
	if err := d.works(); err != nil {
		return nil, err
	}
	s := d.post(r.To, r.Text, channel)
	if len(s.To) == 0 {
		return nil, refusal(s.Refused)
	}
	return s, nil
}

// leave says that the branch is done or finished. That holds even where nobody can be told.
func (d *desk) leave(r request, e event, channel string) (any, error) {
	if _, ok := d.messenger.change(d.owner, e); !ok {
		return nil, fmt.Errorf("%w call: this branch has finished", session.ErrInvalid)
	}
	to := []string(r.To)
	if len(to) == 0 {
		to = d.everybody()
	}
	return d.post(to, r.Text, channel), nil
}

func (d *desk) help(r request) (any, error) {
	if err := d.works(); err != nil {
		return nil, err
	}
	to := []string(r.To)
	if len(to) == 0 {
		to = d.everybody()
	}
	switch r.Level {
	case "", "fyi":
		return d.post(to, r.Text, ChannelFYI), nil
	case "blocked":
		return d.blocked(to, r.Text)
	}
	return nil, fmt.Errorf("%w level %q: it is fyi or blocked", session.ErrInvalid, r.Level)
}

// blocked sends a call for help and collects at once, so that who cannot go on is told if nobody listens. The mailbox's deliveries
// are held meanwhile: nobody else can take the letters away before it is known what becomes of them.
func (d *desk) blocked(to []string, text string) (any, error) {
	x := d.messenger.exchange
	box := x.box(d.owner)
	if box == nil {
		return nil, fmt.Errorf("a mailbox of this branch is %w", session.ErrNotFound)
	}
	box.delivering.Lock()
	defer box.delivering.Unlock()
	s := d.post(to, text, ChannelBlocked)
	asked := map[ident.ID]bool{}
	for _, name := range s.To {
		asked[d.names[name]] = true
	}
	reached := map[ident.ID]bool{}
	x.deliver(box, func(l *session.Letter, who ident.ID, err error) {
		if l.Channel == ChannelBlocked && asked[who] {
			reached[who] = err == nil || errors.Is(err, session.ErrFull)
		}
	})
	s.To = slices.DeleteFunc(s.To, func(name string) bool {
		if reached[d.names[name]] {
			return false
		}
		s.Refused[name] = "has left"
		return true
	})
	if len(s.To) == 0 {
		return nil, fmt.Errorf("nobody listens, and the call for help was not kept: %w", refusal(s.Refused))
	}
	return s, nil
}

func refusal(reasons map[string]string) error {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		all = append(all, name+" "+reasons[name])
	}
	if len(all) == 0 {
		return errors.New("no other name is known here")
	}
	return errors.New(strings.Join(all, "; "))
}

// receive takes out what has arrived, of these senders only where any are named.
func (d *desk) receive(from []string) (any, error) {
	senders := make([]ident.ID, 0, len(from))
	for _, name := range from {
		id, ok := d.names[name]
		if !ok {
			return nil, fmt.Errorf("%w name %q: known are %s", session.ErrInvalid, name, strings.Join(slices.Sorted(maps.Keys(d.names)), ", "))
		}
		senders = append(senders, id)
	}
	letters := []Read{}
	for _, seen := range d.messenger.exchange.Receive(d.owner, senders...) {
		l, ok := d.messenger.exchange.Pop(d.owner, seen.Sender)
		if !ok {
			continue // somebody else reads the same mailbox
		}
		name := d.known[l.Sender]
		if name == "" {
			name = l.Sender.String()
		}
		letters = append(letters, Read{From: name, Channel: l.Channel, Content: l.Content, Time: l.Time.Format(time.RFC3339)})
	}
	return letters, nil
}
