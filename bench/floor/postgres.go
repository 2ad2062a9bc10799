package floor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/bench/measure"
)

// fenced is the smallest check that keeps a stale owner from committing: it fails on the server, within the pipeline.
const (
	fenced   = "select 1 / (case when count(*) = 1 then 1 else 0 end) from (select 1 from lease where shard = 1 and holder = 'me' and epoch = 7 for share) x"
	appended = "insert into turn (actor, seq, id, incoming, outgoing) values ($1, $2, $3, $4, $5)"
)

// Shared is the same loop on PostgreSQL: the rows of many clients in one fenced pipeline, whose end is the commit.
type Shared struct {
	queue
	conn *pgconn.PgConn
}

// OpenShared makes the tables in the database that dsn names, which is empty. The caller must Close it.
func OpenShared(ctx context.Context, dsn string) (*Shared, error) {
	conn, err := pgconn.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	l := &Shared{queue: newQueue(), conn: conn}
	if _, err := conn.Exec(ctx, `create table turn (pos bigint generated always as identity, actor bigint, seq bigint, id bigint, incoming bytea, outgoing bytea);
		create index turn_actor on turn (actor, seq);
		create table lease (shard bigint primary key, holder text, epoch bigint); insert into lease values (1, 'me', 7)`).ReadAll(); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	level := conn.Exec(ctx, "show synchronous_commit; show fsync")
	all, err := level.ReadAll()
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	for _, r := range all {
		if len(r.Rows) != 1 || string(r.Rows[0][0]) != "on" {
			return nil, errors.Join(fmt.Errorf("the server does not wait for the disk: %s", r.Rows), conn.Close(ctx))
		}
	}
	for name, text := range map[string]string{"fence": fenced, "append": appended} {
		if _, err := conn.Prepare(ctx, name, text, nil); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	ctx = context.WithoutCancel(ctx)
	l.done.Go(func() {
		for turns := l.take(); turns != nil; turns = l.take() {
			err := l.commit(ctx, turns)
			for _, t := range turns {
				t.done <- err
			}
		}
	})
	return l, nil
}

// Close ends the loop.
func (l *Shared) Close(ctx context.Context) error {
	close(l.work)
	l.done.Wait()
	return l.conn.Close(ctx)
}

func (l *Shared) commit(ctx context.Context, turns []*turn) error {
	p := l.conn.StartPipeline(ctx)
	p.SendQueryPrepared("fence", nil, nil, nil)
	binaries := []int16{1}
	for _, t := range turns {
		p.SendQueryPrepared("append", [][]byte{number(t.actor), number(t.seq), number(t.id), body, body}, binaries, nil)
	}
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	for range len(turns) + 1 {
		r, err := p.GetResults()
		if err == nil {
			_, err = r.(*pgconn.ResultReader).Close()
		}
		if err != nil {
			return errors.Join(err, p.Close())
		}
	}
	return p.Close()
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// Run drives the loop with clients for d.
func (l *Shared) Run(d time.Duration, clients int) (measure.Result, error) {
	return l.drive(d, clients)
}
