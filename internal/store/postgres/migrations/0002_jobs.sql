-- The modules that a python kernel was started with, joined by commas.
alter table kernel add column modules bytea not null default '';

-- owner: pykernel
create table job (
	kernel     text collate "C" not null,
	id         bytea not null,
	session    text collate "C" not null,
	cell       bytea not null,  -- in which it began, empty for none
	command    bytea not null,
	pid        bigint not null,
	pgid       bigint not null,
	leader     text collate "C" not null,  -- start time of the process that leads the group
	service    bigint not null,
	state      text collate "C" not null,  -- running, exited, lost
	exit_code  bigint,  -- null: unknown
	timed_out  bigint not null,
	bytes      bigint not null,  -- of its output
	started_at bigint not null,
	ended_at   bigint,
	primary key (kernel, id)
);
create index job_state on job (kernel, state, ended_at);

-- owner: pykernel
create table cell_trace (
	cell    text collate "C" primary key,
	session text collate "C" not null,
	kernel  text collate "C" not null,
	body    bytea not null,  -- the changed files with their diffs, JSON
	at      bigint not null
);
create index cell_trace_session on cell_trace (session, cell);

-- owner: shell
create table shell_command (
	session    text collate "C" not null,
	id         text collate "C" not null,  -- chosen by the client
	branch     bytea not null,
	command    bytea not null,
	state      text collate "C" not null,  -- started, ended
	status     text collate "C" not null,  -- exited, timed_out, stopped, failed, unknown; empty while it runs
	exit_code  bigint,         -- negative: the signal that ended it
	note       bytea not null,
	bytes      bigint not null,  -- printed
	kept       bigint not null,  -- of them in its file
	started_at bigint not null,
	ended_at   bigint,
	primary key (session, id)
);
