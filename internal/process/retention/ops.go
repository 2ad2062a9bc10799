package retention

import (
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// op is one of the statements below with its arguments.
type op struct {
	sql  string
	args []any
}

func (o *op) SQL() string { return o.sql }
func (o *op) Args() []any { return o.args }

func do(sql string, args ...any) neuron.Op { return &op{sql, args} }

// The deletions of rows that belong to one session.
const (
	dropEvents    = `delete from event where session = ? and seq <= ?`
	dropInputs    = `delete from input where session = ? and client_id <= ?`
	dropMessages  = `delete from message where branch = ? and seq <= ?`
	dropCall      = `delete from tool_call where id = ?`
	dropCell      = `delete from cell where id = ?`
	dropLedger    = `delete from ledger where pid = ? and id <= ?`
	dropProcesses = `delete from process where session = ? and pid <= ?`
	dropBranch    = `delete from branch where id = ?`
	dropKernel    = `delete from kernel where id = ?`
	dropJobs      = `delete from job where kernel = ? and id <= ?`
	dropTraces    = `delete from cell_trace where session = ? and cell <= ?`
	dropShell     = `delete from shell_command where session = ? and id <= ?`
	// dropContent spares what a message still names.
	dropContent = `delete from content where id = ? and not exists (select 1 from message m where m.content = content.id)`
	dropImages  = `delete from content where id in (?, ?, ?, ?)`
	dropPayload = `delete from content where id = ? and payload = 1`
	// sumLedger adds to the sums of a session what the next deletion takes away, in the same commit.
	sumLedger = `insert into ledger_sum (session, provider, model, attempts, input, cache_read, cache_write, output, reasoning, cost, unknown, estimated, removed_at)
select ?, provider, model, count(*), sum(input), sum(cache_read), sum(cache_write), sum(output), sum(reasoning), coalesce(sum(cost), 0),
sum(case when cost is null then 1 else 0 end), sum(estimated), ? from ledger where pid = ? and id <= ? group by provider, model
on conflict (session, provider, model) do update set ` + addSums
	addSums = `attempts = ledger_sum.attempts + excluded.attempts, input = ledger_sum.input + excluded.input,
cache_read = ledger_sum.cache_read + excluded.cache_read, cache_write = ledger_sum.cache_write + excluded.cache_write,
output = ledger_sum.output + excluded.output, reasoning = ledger_sum.reasoning + excluded.reasoning,
cost = ledger_sum.cost + excluded.cost, unknown = ledger_sum.unknown + excluded.unknown,
estimated = ledger_sum.estimated + excluded.estimated, removed_at = excluded.removed_at`
	// foldSums adds the sums of one session to those of the sessions that are no longer told apart.
	foldSums = `insert into ledger_sum (session, provider, model, attempts, input, cache_read, cache_write, output, reasoning, cost, unknown, estimated, removed_at)
select '', provider, model, attempts, input, cache_read, cache_write, output, reasoning, cost, unknown, estimated, removed_at
from ledger_sum where session = ? and attempts > 0 on conflict (session, provider, model) do update set ` + addSums
	dropSums = `delete from ledger_sum where session = ?`
)

// moveLedger takes ledger rows of a process through an id into the sums of its session.
func moveLedger(session string, pid int64, through ident.ID, at time.Time) []neuron.Op {
	return []neuron.Op{do(sumLedger, session, at.UnixMicro(), pid, through[:]), do(dropLedger, pid, through[:])}
}
