package graph

import (
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

const (
	selectReceivers = `select id, target from connection
		where owner = ? and source = ? and alias = ? and (expires_at = 0 or expires_at > ?) limit ?`
	selectOne      = `select source, alias, target, transform, expires_at from connection where owner = ? and id = ?`
	countOwner     = `select count(*) from connection where owner = ? and id <> ?`
	countSource    = `select count(*) from connection where owner = ? and source = ? and alias = ? and id <> ?`
	selectExpired  = `select id from connection where owner = ? and expires_at > 0 and expires_at <= ? order by expires_at, id limit ?`
	selectNextDate = `select expires_at from connection where owner = ? and expires_at > ? order by expires_at limit 1`
)

// row is a row of the table connection. expires is in Unix microseconds, 0 for never.
type row struct {
	owner     string
	id        ident.ID
	source    string
	alias     string
	target    string
	transform string // JSON of a Transform, "" for none
	expires   int64
}

func (r *row) live(now time.Time) bool { return r.expires == 0 || r.expires > now.UnixMicro() }

// touch names a row; all ops on connections are made of it, because targets on other nodes guard the same rows.
type touch struct {
	owner string
	id    ident.ID
}

// LockKey implements neuron.Shared.
func (t *touch) LockKey() string { return "connection/" + t.owner + "/" + t.id.String() }

// Guard implements neuron.Guarded.
func (t *touch) Guard() error { return missing(t.id) }

// put inserts a connection or changes what it says; what it has carried stays.
type put struct {
	touch
	row row
	at  time.Time
}

func (*put) SQL() string {
	return `insert into connection (id, owner, source, alias, target, transform, expires_at, carried, created_at)
		values (?, ?, ?, ?, ?, ?, ?, 0, ?) on conflict (owner, id) do update set source = excluded.source,
		alias = excluded.alias, target = excluded.target, transform = excluded.transform, expires_at = excluded.expires_at`
}

func (p *put) Args() []any {
	r := &p.row
	return []any{r.id[:], r.owner, r.source, r.alias, r.target, r.transform, r.expires, p.at.UnixMicro()}
}

// remove deletes a connection that must be there.
type remove struct{ touch }

func (*remove) SQL() string   { return `delete from connection where owner = ? and id = ?` }
func (r *remove) Args() []any { return []any{r.owner, r.id[:]} }

// carry counts what a connection brings to its target, if it is live and still the one that was read.
type carry struct {
	row
	now int64
}

var _ neuron.Shared = (*carry)(nil)

func (*carry) SQL() string {
	return `update connection set carried = carried + 1 where owner = ? and id = ? and source = ? and alias = ? and target = ?
		and transform = ? and (expires_at = 0 or expires_at > ?)`
}

func (c *carry) Args() []any {
	return []any{c.owner, c.id[:], c.source, c.alias, c.target, c.transform, c.now}
}

func (c *carry) LockKey() string { return (&touch{c.owner, c.id}).LockKey() }
func (c *carry) Guard() error    { return missing(c.id) }

var (
	_ neuron.Shared = (*put)(nil)
	_ neuron.Shared = (*remove)(nil)
)
