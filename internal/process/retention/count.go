package retention

import (
	"context"

	"soma/ident"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/process"
)

// Counts of what one session, branch, kernel or process has, by table.
var (
	ofSession = map[string]string{
		"event":         `select count(*) from event where session = ?`,
		"input":         `select count(*) from input where session = ?`,
		"cell_trace":    `select count(*) from cell_trace where session = ?`,
		"shell_command": `select count(*) from shell_command where session = ?`,
	}
	ofBranch = map[string][]string{
		"message": {`select count(*) from message where branch = ?`},
		"cell":    {`select count(*) from cell where branch = ?`},
		"content": {
			`select count(*) from cell x join content c on c.id = x.content where x.branch = ?`,
			`select count(*) from message m join content c on c.id = m.content where m.branch = ?1
and not exists (select 1 from message o where o.content = m.content and o.branch <> ?1)`,
		},
	}
	ofKernel = map[string]string{
		"kernel_frame": `select count(*) from kernel_frame where kernel = ?`,
		"kernel_inbox": `select count(*) from kernel_inbox where kernel = ?`,
		"kernel_call":  `select count(*) from kernel_call where kernel = ?`,
		"job":          `select count(*) from job where kernel = ?`,
	}
	ofNeuron = map[string]string{
		"neuron": `select count(*) from neuron where id = ?`,
		"turn":   `select count(*) from turn where neuron = (select key from neuron where id = ?)`,
		"seen":   `select count(*) from seen where neuron = (select key from neuron where id = ?)`,
	}
)

// count returns how many rows a session has, by table.
func (k *Keeper) count(ctx context.Context, t *target) (map[string]int64, error) {
	rows := map[string]int64{"session": 1, "branch": int64(len(t.branches)), "process": int64(len(t.pids)), "kernel": int64(len(t.kernels))}
	add := func(table, sql string, arg any) error {
		n, err := k.number(ctx, sql, arg)
		rows[table] += n
		return err
	}
	for table, sql := range ofSession {
		if err := add(table, sql, t.session); err != nil {
			return nil, err
		}
	}
	for _, b := range t.branches {
		for table, texts := range ofBranch {
			for _, sql := range texts {
				if err := add(table, sql, b[:]); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, b := range t.branches {
		err := k.each(ctx, `select body from cell where branch = ? and body is not null`, []any{b[:]}, func(scan func(...any) error) error {
			var body []byte
			err := scan(&body)
			rows["content"] += int64(len(bodyOf(body).Images))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, id := range t.kernels {
		for table, sql := range ofKernel {
			if err := add(table, sql, id); err != nil {
				return nil, err
			}
		}
	}
	kin := k.neurons(t)
	for _, id := range kin {
		for table, sql := range ofNeuron {
			if err := add(table, sql, id.String()); err != nil {
				return nil, err
			}
		}
		payloads, err := k.payloadsOf(ctx, id, kin)
		if err != nil {
			return nil, err
		}
		rows["content"] += int64(len(payloads))
	}
	for _, pid := range t.pids {
		var after ident.ID
		for n := chunk; n == chunk; {
			ids, err := k.ledgerIDs(ctx, pid, after, chunk)
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				calls, err := k.callsOf(ctx, id)
				if err != nil {
					return nil, err
				}
				rows["tool_call"] += int64(len(calls))
				after = id
			}
			n = len(ids)
			rows["ledger"] += int64(n)
		}
	}
	return rows, nil
}

// neuronRows counts what is stored of one neuron.
func (k *Keeper) neuronRows(ctx context.Context, id neuron.ID) (rows int64, err error) {
	for _, sql := range ofNeuron {
		n, err := k.number(ctx, sql, id.String())
		if err != nil {
			return 0, err
		}
		rows += n
	}
	return rows, nil
}

func (k *Keeper) ledgerIDs(ctx context.Context, pid int64, after ident.ID, limit int) (ids []ident.ID, err error) {
	err = k.each(ctx, `select id from ledger where pid = ? and id > ? order by id limit ?`, []any{pid, after[:], int64(limit)},
		func(scan func(...any) error) error {
			var b []byte
			if err := scan(&b); err != nil {
				return err
			}
			id, err := ident.FromBytes(b)
			ids = append(ids, id)
			return err
		})
	return ids, err
}

// selectCalls reads which of the calls there are that one answer can have.
const (
	eight       = `?, ?, ?, ?, ?, ?, ?, ?`
	thirtyTwo   = eight + `, ` + eight + `, ` + eight + `, ` + eight
	selectCalls = `select id from tool_call where id in (` + thirtyTwo + `, ` + thirtyTwo + `, ` + thirtyTwo + `, ` + thirtyTwo + `)`
)

var _ [128]struct{} = [turn.MaxCalls]struct{}{}

// callsOf returns the ids of the tool calls of an answer: an answer's delivery and its ledger row have one id.
func (k *Keeper) callsOf(ctx context.Context, answer ident.ID) (ids [][]byte, err error) {
	args := make([]any, turn.MaxCalls)
	for i := range args {
		id := process.CallRow(answer, i)
		args[i] = id[:]
	}
	err = k.each(ctx, selectCalls, args, func(scan func(...any) error) error {
		var b []byte
		err := scan(&b)
		ids = append(ids, append([]byte(nil), b...))
		return err
	})
	return ids, err
}

func sum(rows map[string]int64) (n int64) {
	for _, rows := range rows {
		n += rows
	}
	return n
}
