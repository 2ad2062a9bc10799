package shell

import "time"

// insertCommand is the row of a command that begins.
type insertCommand struct {
	session, id string
	branch      []byte
	command     string
	at          time.Time
}

func (*insertCommand) SQL() string {
	return `insert into shell_command (session, id, branch, command, state, status, exit_code, note, bytes, kept, started_at, ended_at)
values (?, ?, ?, ?, 'started', '', null, '', 0, 0, ?, null)`
}

func (o *insertCommand) Args() []any {
	return []any{o.session, o.id, o.branch, o.command, o.at.UnixMicro()}
}

// endCommand records how a command has ended. Repeats change nothing.
type endCommand struct {
	session, id string
	outcome
	at time.Time
}

func (*endCommand) SQL() string {
	return `update shell_command set state = 'ended', status = ?, exit_code = ?, note = ?, bytes = ?, kept = ?, ended_at = ?
where session = ? and id = ? and state = 'started'`
}

func (o *endCommand) Args() []any {
	var code any
	if o.ExitCode != nil {
		code = int64(*o.ExitCode)
	}
	return []any{o.Status, code, o.Note, o.Bytes, o.Kept, o.at.UnixMicro(), o.session, o.id}
}

// trimCommands deletes the oldest commands of a session that have ended, beyond maxKept.
type trimCommands struct{ session string }

func (*trimCommands) SQL() string {
	return `delete from shell_command where session = ? and state = 'ended' and (ended_at, id) <=
(select ended_at, id from shell_command where session = ? and state = 'ended' order by ended_at desc, id desc limit 1 offset ?)`
}

func (o *trimCommands) Args() []any { return []any{o.session, o.session, int64(maxKept)} }
