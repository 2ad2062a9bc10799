-- The modules that a python kernel was started with, joined by commas.
alter table kernel add column modules text not null default '';

-- owner: pykernel
create table job (
	kernel     text not null,
	id         text not null,
	session    text not null,
	cell       text not null,          -- in which it began, empty for none
	command    text not null,
	pid        integer not null,
	pgid       integer not null,
	leader     text not null,          -- start time of the process that leads the group
	service    integer not null,
	state      text not null,          -- running, exited, lost
	exit_code  integer,                -- null: unknown
	timed_out  integer not null,
	bytes      integer not null,       -- of its output
	started_at integer not null,
	ended_at   integer,
	primary key (kernel, id)
) strict, without rowid;
create index job_state on job (kernel, state, ended_at);

-- owner: pykernel
create table cell_trace (
	cell    text primary key,
	session text not null,
	kernel  text not null,
	body    blob not null,             -- the changed files with their diffs, JSON
	at      integer not null
) strict;
create index cell_trace_session on cell_trace (session, cell);

-- owner: shell
create table shell_command (
	session    text not null,
	id         text not null,          -- chosen by the client
	branch     blob not null,
	command    text not null,
	state      text not null,          -- started, ended
	status     text not null,          -- exited, timed_out, stopped, failed, unknown; empty while it runs
	exit_code  integer,                -- negative: the signal that ended it
	note       text not null,
	bytes      integer not null,       -- printed
	kept       integer not null,       -- of them in its file
	started_at integer not null,
	ended_at   integer,
	primary key (session, id)
) strict, without rowid;
