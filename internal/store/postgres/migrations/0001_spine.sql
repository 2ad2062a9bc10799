-- Times are Unix microseconds, ids 16 bytes unless said otherwise, money nano-dollars, bodies JSON.
-- The tables and columns are those of the other engine. Text that a person, a program or a model chose is bytea: text takes
-- no zero byte. The order of texts is that of their bytes.

-- owner: store
create table meta (
	name  text collate "C" primary key,  -- generation, schema
	value text collate "C" not null
);

-- owner: store
create table node (
	id         text collate "C" primary key,
	epoch      bigint not null,  -- grows at each start; the fence of commits
	url        text collate "C" not null default '',  -- url, cert, beat: of nodes that share a database
	cert       text collate "C" not null default '',
	beat       bigint not null default 0,
	started_at bigint not null
);

-- owner: store
create table lease (
	place  bigint primary key,
	holder text collate "C" not null,
	epoch  bigint not null
);
insert into lease (place, holder, epoch) select n, '', 0 from generate_series(0, 255) n;

-- owner: neuron
create table neuron (
	key         bigint primary key,
	id          text collate "C" not null unique,
	place       bigint not null,
	in_seq      bigint not null,  -- as of the checkpoint, like all that follows
	out_seq     bigint not null,
	tallies     text collate "C" not null,
	marks       text collate "C" not null,  -- sizes of the feeds at earlier checkpoints, JSON: what trimming goes by
	latest      bytea not null,  -- highest delivery id in seen
	state_alias text collate "C" not null,
	state       bytea
);

-- owner: neuron
create table turn (
	pos         bigint generated always as identity,
	neuron      bigint not null,
	seq         bigint not null,
	delivery_id bytea,  -- null, like incoming, for a step: what the turn of this seq committed ahead of its end
	incoming    bytea,
	out_first   bigint not null,
	outgoing    bytea,
	state_alias text collate "C",
	state       bytea
);
create unique index turn_delivery on turn (delivery_id);
create index turn_neuron on turn (neuron, seq);

-- owner: neuron
create table seen (
	neuron  bigint not null,
	segment bigint not null,  -- incoming sequence of its last id; the window keeps the newest
	ids     bytea not null  -- delivery ids one after the other
);
create unique index seen_segment on seen (neuron, segment);

-- owner: neuron
create table outbox (
	id       bytea primary key,
	place    bigint not null,  -- of the target
	target   text collate "C" not null,
	delivery bytea not null,
	due      bigint not null,
	first_try bigint not null,  -- 0 before the first
	tried    bigint not null,  -- microseconds really tried
	attempts bigint not null,
	crashes  bigint not null,
	alarm    bigint not null
);

-- owner: neuron
create table dead_letter (
	id       bytea primary key,
	delivery bytea not null,
	code     text collate "C" not null,
	error    bytea not null,
	attempts bigint not null,
	ended_at bigint not null
);

-- owner: neuron
create table execution (
	id         bytea primary key,  -- attempt bits zero
	place      bigint not null,
	neuron     text collate "C" not null,
	kind       text collate "C" not null,
	attempt    bigint not null,
	estimate   bigint not null,  -- reserved cost
	body       bytea not null,
	started_at bigint not null
);

-- owner: neuron
create table content (
	id      bytea primary key,
	size    bigint not null,
	bytes   bytea not null,
	payload bigint not null default 0  -- 1: of a delivery, not of a row of its own
);
create index content_payload on content (id) where payload = 1;

-- owner: neuron/graph
create table connection (
	id         bytea not null,
	owner      text collate "C" not null,
	source     text collate "C" not null,  -- neuron ids are owner/kind/key
	alias      text collate "C" not null,
	target     text collate "C" not null,
	transform  text collate "C" not null,  -- JSON, '' for none
	expires_at bigint not null,  -- 0: never
	carried    bigint not null,  -- deliveries that it has brought to its target
	created_at bigint not null,
	primary key (owner, id)
);
create index connection_source on connection (owner, source, alias, expires_at, target); -- all that an emission reads
create index connection_expiry on connection (owner, expires_at);

-- owner: neuron
create table call (
	id       bytea primary key,  -- of the request; goes with the commit of the caller's end fact
	cause    bytea not null,  -- the delivery whose handler asks
	correlation bytea not null,
	caller   text collate "C" not null,  -- empty from outside
	target   text collate "C" not null,
	alias    text collate "C" not null,  -- of contract and method
	place    bigint not null,  -- of who asks; from outside the target's
	ask      bytea not null,  -- the delivery that carries it now
	part     bigint not null,  -- of a stream, from 1: the one that was asked last
	state    text collate "C" not null,  -- asked, more, completed, failed, rejected, left
	code     text collate "C" not null,
	deadline bigint not null,
	request  bytea not null,
	reply    bytea,
	after    bytea  -- where the stream goes on, as its target wrote it
);

-- owner: neuron
create table call_part (
	call  bytea not null,
	part  bigint not null,
	reply bytea not null,
	primary key (call, part)
);

-- owner: process
create table session (
	id         text collate "C" primary key,  -- chosen by the client
	owner      text collate "C" not null,
	place      bigint not null,
	kind       text collate "C" not null,  -- run, py
	workspace  bytea not null,
	model      bytea not null,
	agent      bytea not null,
	python     bytea not null,
	keep       bigint not null,  -- its processes wait for more when their inputs are worked through
	branch     bytea not null,  -- the default branch
	state      text collate "C" not null,  -- open, closed, removing
	created_at bigint not null,
	closed_at  bigint
);
create index session_workspace on session (workspace, kind, created_at);

-- owner: process
create table branch (
	id           bytea primary key,
	session      text collate "C" not null,
	name         bytea not null,
	created_at   bigint not null
);

-- owner: process
create table message (
	branch  bytea not null,
	seq     bigint not null,  -- 1, 2, … within the branch, given by the appending turn
	id      bytea not null,
	role    text collate "C" not null,
	body    bytea,  -- message.Message; null when in content
	content bytea,
	attempt bigint not null,
	at      bigint not null,
	primary key (branch, seq)
);
create index message_content on message (content) where content is not null;

-- owner: process
create table input (
	session      text collate "C" not null,
	client_id    bytea not null,
	id           bytea not null,
	pid          bigint not null,
	mode         text collate "C" not null,  -- steer, after
	state        text collate "C" not null,  -- admitted, delivered, cancelled
	text         bytea not null,
	at           bigint not null,
	ended_at     bigint,
	primary key (session, client_id)
);

-- owner: process
create table process (
	pid         bigint primary key,
	owner       text collate "C" not null,
	session     text collate "C" not null,
	branch      bytea not null,
	parent      bigint not null,
	agent       bytea not null,
	model       bytea not null,
	workspace   bytea not null,
	state       text collate "C" not null,
	reason      bytea not null,
	detail      bytea not null,
	since       bigint not null,
	exit_code   bigint not null,
	steps       bigint not null,
	cells       bigint not null,
	tokens      bigint not null,
	cost        bigint,  -- own cost; null when any part is unknown
	estimated   bigint not null,
	created_at  bigint not null,
	ended_at    bigint
);
create index process_session on process (session);
create index process_live on process (ended_at, pid);
create index process_workspace on process (workspace, created_at);

-- owner: process
create table tool_call (
	id          bytea primary key,
	pid         bigint not null,
	branch      bytea not null,
	step        bigint not null,
	position    bigint not null,  -- within its message
	call_id     bytea not null,
	tool        bytea not null,
	arguments   bytea not null,
	state       text collate "C" not null,  -- running, ended
	status      bytea not null,
	cell        text collate "C" not null,
	result      bytea,  -- the tool message, held until its turn in call order; of a call that was refused for good
	cost        bigint,
	started_at  bigint not null,
	ended_at    bigint
);

-- owner: process
create table ledger (
	pid         bigint not null,
	id          bytea not null,  -- the execution's id with its attempt
	session     text collate "C" not null,
	kind        text collate "C" not null,  -- inference
	provider    bytea not null,
	model       bytea not null,
	step        bigint not null,
	attempt     bigint not null,
	outcome     text collate "C" not null,  -- done, failed, lost, superseded, cancelled
	input       bigint not null,
	cache_read  bigint not null,
	cache_write bigint not null,
	output      bigint not null,
	reasoning   bigint not null,
	cost        bigint,  -- null: unknown
	estimated   bigint not null,
	started_at  bigint not null,
	ended_at    bigint not null,
	primary key (pid, id)
);

-- owner: process
create table ledger_sum (
	session     text collate "C" not null,  -- that was removed; '' for those removed longest ago
	provider    bytea not null,
	model       bytea not null,
	attempts    bigint not null,  -- sums of ledger rows, like all that follows
	input       bigint not null,
	cache_read  bigint not null,
	cache_write bigint not null,
	output      bigint not null,
	reasoning   bigint not null,
	cost        bigint not null,
	unknown     bigint not null,  -- attempts whose cost is not known
	estimated   bigint not null,  -- attempts whose tokens are estimated
	removed_at  bigint not null,
	primary key (session, provider, model)
);
create index ledger_sum_removed on ledger_sum (removed_at);

-- owner: process
create table cell (
	id          text collate "C" primary key,  -- text form of an id
	owner       text collate "C" not null,  -- the neuron that the outcome goes to
	session     text collate "C" not null,
	branch      bytea not null,
	pid         bigint not null,  -- 0 without a process
	kernel      text collate "C" not null,
	code        bytea not null,
	timeout_ms  bigint not null,
	state       text collate "C" not null,  -- started, ended
	status      bytea not null,
	body        bytea,  -- the outcome without its output, JSON
	content     bytea,  -- the output: one content row
	output_size bigint not null,
	started_at  bigint not null,
	ended_at    bigint
);
create index cell_kernel on cell (kernel, state);
create index cell_branch on cell (branch, started_at);

-- owner: process
create table event (
	session text collate "C" not null,
	seq     bigint not null,
	pid     bigint not null,
	kind    text collate "C" not null,
	body    bytea not null,
	at      bigint not null,
	primary key (session, seq)
);

-- owner: pykernel
create table kernel (
	id         text collate "C" primary key,  -- text form of an id, chosen by the turn that commits its first frame
	owner      text collate "C" not null,  -- the neuron to which outcomes go
	session    text collate "C" not null,
	branch     bytea not null,
	node       text collate "C" not null,
	workspace  bytea not null,
	python     bytea not null,
	state      text collate "C" not null,  -- booting, running, ending, ended
	reason     bytea not null,  -- why it ended
	token      text collate "C" not null,
	bundle     text collate "C" not null,
	os_pid     bigint not null,
	pgid       bigint not null,
	leader     text collate "C" not null,
	epoch      bigint not null,
	last_seq   bigint not null,  -- last frame number given
	used_at    bigint not null,
	created_at bigint not null,
	ended_at   bigint
);
create index kernel_state on kernel (state, used_at);
create index kernel_branch on kernel (branch, created_at);

-- owner: pykernel
create table kernel_frame (
	kernel text collate "C" not null,
	seq    bigint not null,
	cell   text collate "C" not null,
	body   bytea not null,
	at     bigint not null,
	primary key (kernel, seq)
);

-- owner: pykernel
create table kernel_inbox (
	kernel text collate "C" not null,
	item   bytea not null,  -- done:<cell>, call:<id>
	at     bigint not null,
	primary key (kernel, item)
);

-- owner: pykernel
create table kernel_call (
	kernel text collate "C" not null,
	id     bytea not null,
	method bytea not null,
	state  text collate "C" not null,  -- started, answered
	body   bytea not null,  -- the reply once there is one
	seq    bigint not null,  -- frame of the reply
	at     bigint not null,
	primary key (kernel, id)
);
