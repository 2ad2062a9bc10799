package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// Bounds of a graph; Options can lower them.
const (
	maxConnections = 10_000
	maxPerSource   = 1_000
	maxAliasBytes  = 256
	expiredAtOnce  = 500 // removed by one turn
)

// Options are what the graphs of a program are made of. Reader is needed.
type Options struct {
	// Reader reads committed rows.
	Reader neuron.Reader
	// Transforms are those that connections may name.
	Transforms []Registered
	// Schemas are of the aliases between which declarative transforms may lead.
	Schemas []Schema
	// Connections and PerSource bound the connections of an owner, and those of one source and alias; 0: 10,000 and 1,000.
	Connections, PerSource int
}

// Graph is the kind of the graph neurons and the relay of their connections. It is safe for concurrent use.
type Graph struct {
	reader      neuron.Reader
	transforms  map[string]Registered
	schemas     map[string]*Schema
	connections int
	perSource   int
}

// New returns the graphs of a program. All mistakes are joined in the error: a doubled name, a type without a schema.
func New(o Options) (*Graph, error) {
	g := &Graph{
		reader: o.Reader, transforms: map[string]Registered{}, schemas: map[string]*Schema{},
		connections: maxConnections, perSource: maxPerSource,
	}
	if o.Connections > 0 {
		g.connections = o.Connections
	}
	if o.PerSource > 0 {
		g.perSource = o.PerSource
	}
	var errs []error
	if g.reader == nil {
		errs = append(errs, errors.New("no reader"))
	}
	for _, r := range o.Transforms {
		if _, ok := g.transforms[r.name]; ok || r.name == "" {
			errs = append(errs, fmt.Errorf("transform %q is registered twice or has no name", r.name))
		}
		g.transforms[r.name] = r
	}
	for _, s := range o.Schemas {
		if _, ok := g.schemas[s.alias]; ok || s.alias == "" {
			errs = append(errs, fmt.Errorf("alias %q is described twice or empty", s.alias))
		}
		if s.err != nil {
			errs = append(errs, fmt.Errorf("alias %s: %w", s.alias, s.err))
		}
		g.schemas[s.alias] = &s
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("cannot make the connection graph: %w", err)
	}
	return g, nil
}

// Kind returns the kind of the graph neurons.
func (g *Graph) Kind() *neuron.Kind {
	k := neuron.NewKind(Kind)
	neuron.Handle(k, ConnectType, g.connect)
	neuron.Handle(k, DisconnectType, g.disconnect)
	neuron.Handle(k, expireType, g.expire)
	return k
}

func missing(id ident.ID) error {
	return &neuron.Refusal{Code: neuron.MissingConnection, Err: fmt.Errorf("connection %s", id)}
}

// mine refuses turns of other neurons than an owner's one graph, and senders of other owners.
func mine(t *neuron.Turn) error {
	self, caller := t.Self(), t.Delivery().Caller
	if self != ID(self.Owner) {
		return neuron.Settle(fmt.Errorf("%s is no graph: it is called %s", self, ID(self.Owner)))
	}
	if !caller.IsZero() && caller.Owner != self.Owner {
		return neuron.SettleAs(neuron.CrossOwner, fmt.Errorf("%s asks the graph of %s", caller, self.Owner))
	}
	return nil
}

func (g *Graph) connect(t *neuron.Turn, c Connect) error {
	if err := mine(t); err != nil {
		return err
	}
	r, err := g.check(t, c)
	if err != nil {
		return err
	}
	all, err := count(t, countOwner, r.owner, r.id[:])
	if err != nil {
		return err
	}
	some, err := count(t, countSource, r.owner, r.source, r.alias, r.id[:])
	if err != nil {
		return err
	}
	switch {
	case all >= g.connections:
		return neuron.SettleAs(TooManyConnections, fmt.Errorf("%s has %d connections, at most %d", r.owner, all, g.connections))
	case some >= g.perSource:
		return neuron.SettleAs(TooManyConnections, fmt.Errorf("%s has %d connections for %s, at most %d", r.source, some, r.alias, g.perSource))
	}
	t.Write(&put{touch{r.owner, r.id}, r, t.Now()})
	if r.expires == 0 {
		return nil
	}
	return setAlarm(t, time.UnixMicro(r.expires), false)
}

// check returns the row of a connection that may be.
func (g *Graph) check(t *neuron.Turn, c Connect) (row, error) {
	owner := t.Self().Owner
	if c.ID.IsZero() {
		return row{}, neuron.SettleAs(neuron.EmptyIdentity, errors.New("the connection has no id"))
	}
	if c.Alias == "" {
		return row{}, neuron.SettleAs(neuron.EmptyIdentity, errors.New("the connection has no alias"))
	}
	if len(c.Alias) > maxAliasBytes || strings.IndexByte(c.Alias, 0) >= 0 {
		return row{}, neuron.Settle(fmt.Errorf("an alias of %d bytes, at most %d and none of them zero", len(c.Alias), maxAliasBytes))
	}
	source, err := end("source", c.Source, owner)
	if err != nil {
		return row{}, err
	}
	target, err := end("target", c.Target, owner)
	if err != nil {
		return row{}, err
	}
	if target.Kind == Kind {
		return row{}, neuron.SettleAs(GraphTarget, fmt.Errorf("target %s: the graph cannot be connected to", target))
	}
	r := row{owner: owner, id: c.ID, source: source.String(), alias: c.Alias, target: target.String()}
	if !c.Expires.IsZero() {
		if r.expires = c.Expires.UnixMicro(); !r.live(t.Now()) || r.expires < 0 {
			return row{}, neuron.SettleAs(Expired, fmt.Errorf("the connection would have expired at %s", c.Expires.UTC().Format(time.RFC3339Nano)))
		}
	}
	if c.Transform != nil {
		if _, err := g.resolve(c.Alias, c.Transform); err != nil {
			return row{}, err
		}
		b, err := json.Marshal(c.Transform)
		if err != nil {
			return row{}, neuron.SettleAs(InvalidField, err)
		}
		r.transform = string(b)
	}
	return r, nil
}

// end reads one end of a connection.
func end(name, text, owner string) (neuron.ID, error) {
	id, err := neuron.ParseID(text)
	switch {
	case text == "" || strings.HasPrefix(text, "/") || strings.HasSuffix(text, "/") || strings.Contains(text, "//"):
		return id, neuron.SettleAs(neuron.EmptyIdentity, fmt.Errorf("%s %q is empty or has an empty part", name, text))
	case err != nil:
		return id, neuron.Settle(fmt.Errorf("%s: %w", name, err))
	case id.Owner != owner:
		return id, neuron.SettleAs(neuron.CrossOwner, fmt.Errorf("%s %s is not of owner %s", name, id, owner))
	}
	return id, nil
}

func (g *Graph) disconnect(t *neuron.Turn, d Disconnect) error {
	if err := mine(t); err != nil {
		return err
	}
	owner := t.Self().Owner
	n, err := count(t, `select count(*) from connection where owner = ? and id = ?`, owner, d.ID[:])
	if err != nil {
		return err
	}
	if n == 0 {
		return missing(d.ID)
	}
	t.Write(&remove{touch{owner, d.ID}})
	return nil
}

// expire removes what has expired and sets the alarm for what will next.
func (g *Graph) expire(t *neuron.Turn, _ expire) error {
	if err := mine(t); err != nil {
		return err
	}
	owner, now := t.Self().Owner, t.Now().UnixMicro()
	removed := 0
	err := t.Query(selectExpired, []any{owner, now, expiredAtOnce}, func(scan func(...any) error) error {
		var id []byte
		if err := scan(&id); err != nil {
			return err
		}
		removed++
		t.Write(&remove{touch{owner, ident.ID(id)}})
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read expired connections: %w", err)
	}
	if removed == expiredAtOnce {
		return setAlarm(t, t.Now(), true)
	}
	var next time.Time
	err = t.Query(selectNextDate, []any{owner, now}, func(scan func(...any) error) error {
		var at int64
		err := scan(&at)
		next = time.UnixMicro(at)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot read the next expiry: %w", err)
	}
	return setAlarm(t, next, true)
}

// setAlarm makes the alarm ring at the given time, zero for never. Unless it is moved, an alarm that rings before stays.
func setAlarm(t *neuron.Turn, at time.Time, move bool) error {
	s, err := neuron.State(t, scheduleType, nil)
	if err != nil {
		return err
	}
	if !move && !s.At.IsZero() && !s.At.After(at) {
		return nil
	}
	if !s.Alarm.IsZero() && s.Alarm != t.Delivery().ID {
		t.CancelAlarm(s.Alarm)
	}
	s = schedule{At: at}
	if !at.IsZero() {
		if s.Alarm, err = neuron.After(t, at.Sub(t.Now()), expireType, expire{}); err != nil {
			return err
		}
	}
	return neuron.SetState(t, scheduleType, s)
}

func count(t *neuron.Turn, query string, args ...any) (n int, err error) {
	err = t.Query(query, args, func(scan func(...any) error) error { return scan(&n) })
	if err != nil {
		return 0, fmt.Errorf("cannot count connections: %w", err)
	}
	return n, nil
}
