-- Times are Unix microseconds, ids 16-byte blobs unless said otherwise, money nano-dollars, bodies JSON.
-- Tables that grow in many places at once keep their rowid: the rows of a commit lie side by side, whatever their key.

-- owner: store
create table meta (
	name  text primary key,           -- generation, schema
	value text not null
) strict, without rowid;

-- owner: store
create table node (
	id         text primary key,
	epoch      integer not null,       -- grows at each start; the fence of commits
	url        text not null default '', -- url, cert, beat: of nodes that share a database
	cert       text not null default '',
	beat       integer not null default 0,
	started_at integer not null
) strict, without rowid;

-- owner: store
create table lease (
	place  integer primary key,
	holder text not null,
	epoch  integer not null
) strict;

-- owner: neuron
create table neuron (
	key         integer primary key,
	id          text not null unique,
	place       integer not null,
	in_seq      integer not null,      -- as of the checkpoint, like all that follows
	out_seq     integer not null,
	tallies     text not null,
	marks       text not null,         -- sizes of the feeds at earlier checkpoints, JSON: what trimming goes by
	latest      blob not null,         -- highest delivery id in seen
	state_alias text not null,
	state       blob
) strict;

-- owner: neuron
create table turn (
	pos         integer primary key,
	neuron      integer not null,
	seq         integer not null,
	delivery_id blob,                  -- null, like incoming, for a step: what the turn of this seq committed ahead of its end
	incoming    blob,
	out_first   integer not null,
	outgoing    blob,
	state_alias text,
	state       blob
) strict;
create unique index turn_delivery on turn (delivery_id);
create index turn_neuron on turn (neuron, seq);

-- owner: neuron
create table seen (
	neuron  integer not null,
	segment integer not null,          -- incoming sequence of its last id; the window keeps the newest
	ids     blob not null              -- delivery ids one after the other
) strict;
create unique index seen_segment on seen (neuron, segment);

-- owner: neuron
create table outbox (
	id       blob primary key,
	place    integer not null,         -- of the target
	target   text not null,
	delivery blob not null,
	due      integer not null,
	first_try integer not null,        -- 0 before the first
	tried    integer not null,         -- microseconds really tried
	attempts integer not null,
	crashes  integer not null,
	alarm    integer not null
) strict, without rowid;

-- owner: neuron
create table dead_letter (
	id       blob primary key,
	delivery blob not null,
	code     text not null,
	error    text not null,
	attempts integer not null,
	ended_at integer not null
) strict, without rowid;

-- owner: neuron
create table execution (
	id         blob primary key,       -- attempt bits zero
	place      integer not null,
	neuron     text not null,
	kind       text not null,
	attempt    integer not null,
	estimate   integer not null,       -- reserved cost
	body       blob not null,
	started_at integer not null
) strict, without rowid;

-- owner: neuron
create table content (
	id      blob primary key,
	size    integer not null,
	bytes   blob not null,
	payload integer not null default 0 -- 1: of a delivery, not of a row of its own
) strict;
create index content_payload on content (id) where payload = 1;

-- owner: neuron/graph
create table connection (
	id         blob not null,
	owner      text not null,
	source     text not null,          -- neuron ids are owner/kind/key
	alias      text not null,
	target     text not null,
	transform  text not null,          -- JSON, '' for none
	expires_at integer not null,       -- 0: never
	carried    integer not null,       -- deliveries that it has brought to its target
	created_at integer not null,
	primary key (owner, id)
) strict, without rowid;
create index connection_source on connection (owner, source, alias, expires_at, target); -- all that an emission reads
create index connection_expiry on connection (owner, expires_at);

-- owner: neuron
create table call (
	id       blob primary key,         -- of the request; goes with the commit of the caller's end fact
	cause    blob not null,            -- the delivery whose handler asks
	correlation blob not null,
	caller   text not null,            -- empty from outside
	target   text not null,
	alias    text not null,            -- of contract and method
	place    integer not null,         -- of who asks; from outside the target's
	ask      blob not null,            -- the delivery that carries it now
	part     integer not null,         -- of a stream, from 1: the one that was asked last
	state    text not null,            -- asked, more, completed, failed, rejected, left
	code     text not null,
	deadline integer not null,
	request  blob not null,
	reply    blob,
	after    blob                      -- where the stream goes on, as its target wrote it
) strict, without rowid;

-- owner: neuron
create table call_part (
	call  blob not null,
	part  integer not null,
	reply blob not null,
	primary key (call, part)
) strict, without rowid;

-- owner: process
create table session (
	id         text primary key,       -- chosen by the client
	owner      text not null,
	place      integer not null,
	kind       text not null,          -- run, py
	workspace  text not null,
	model      text not null,
	agent      text not null,
	python     text not null,
	keep       integer not null,       -- its processes wait for more when their inputs are worked through
	branch     blob not null,          -- the default branch
	state      text not null,          -- open, closed, removing
	created_at integer not null,
	closed_at  integer
) strict, without rowid;
create index session_workspace on session (workspace, kind, created_at);

-- owner: process
create table branch (
	id           blob primary key,
	session      text not null,
	name         text not null,
	created_at   integer not null
) strict, without rowid;

-- owner: process
create table message (
	branch  blob not null,
	seq     integer not null,          -- 1, 2, … within the branch, given by the appending turn
	id      blob not null,
	role    text not null,
	body    blob,                      -- message.Message; null when in content
	content blob,
	attempt integer not null,
	at      integer not null,
	primary key (branch, seq)
) strict;
create index message_content on message (content) where content is not null;

-- owner: process
create table input (
	session      text not null,
	client_id    text not null,
	id           blob not null,
	pid          integer not null,
	mode         text not null,        -- steer, after
	state        text not null,        -- admitted, delivered, cancelled
	text         text not null,
	at           integer not null,
	ended_at     integer,
	primary key (session, client_id)
) strict, without rowid;

-- owner: process
create table process (
	pid         integer primary key,
	owner       text not null,
	session     text not null,
	branch      blob not null,
	parent      integer not null,
	agent       text not null,
	model       text not null,
	workspace   text not null,
	state       text not null,
	reason      text not null,
	detail      text not null,
	since       integer not null,
	exit_code   integer not null,
	steps       integer not null,
	cells       integer not null,
	tokens      integer not null,
	cost        integer,               -- own cost; null when any part is unknown
	estimated   integer not null,
	created_at  integer not null,
	ended_at    integer
) strict;
create index process_session on process (session);
create index process_live on process (ended_at, pid);
create index process_workspace on process (workspace, created_at);

-- owner: process
create table tool_call (
	id          blob primary key,
	pid         integer not null,
	branch      blob not null,
	step        integer not null,
	position    integer not null,      -- within its message
	call_id     text not null,
	tool        text not null,
	arguments   blob not null,
	state       text not null,         -- running, ended
	status      text not null,
	cell        text not null,
	result      blob,                  -- the tool message, held until its turn in call order; of a call that was refused for good
	cost        integer,
	started_at  integer not null,
	ended_at    integer
) strict, without rowid;

-- owner: process
create table ledger (
	pid         integer not null,
	id          blob not null,         -- the execution's id with its attempt
	session     text not null,
	kind        text not null,         -- inference
	provider    text not null,
	model       text not null,
	step        integer not null,
	attempt     integer not null,
	outcome     text not null,         -- done, failed, lost, superseded, cancelled
	input       integer not null,
	cache_read  integer not null,
	cache_write integer not null,
	output      integer not null,
	reasoning   integer not null,
	cost        integer,               -- null: unknown
	estimated   integer not null,
	started_at  integer not null,
	ended_at    integer not null,
	primary key (pid, id)
) strict;

-- owner: process
create table ledger_sum (
	session     text not null,         -- that was removed; '' for those removed longest ago
	provider    text not null,
	model       text not null,
	attempts    integer not null,      -- sums of ledger rows, like all that follows
	input       integer not null,
	cache_read  integer not null,
	cache_write integer not null,
	output      integer not null,
	reasoning   integer not null,
	cost        integer not null,
	unknown     integer not null,      -- attempts whose cost is not known
	estimated   integer not null,      -- attempts whose tokens are estimated
	removed_at  integer not null,
	primary key (session, provider, model)
) strict, without rowid;
create index ledger_sum_removed on ledger_sum (removed_at);

-- owner: process
create table cell (
	id          text primary key,      -- text form of an id
	owner       text not null,         -- the neuron that the outcome goes to
	session     text not null,
	branch      blob not null,
	pid         integer not null,      -- 0 without a process
	kernel      text not null,
	code        text not null,
	timeout_ms  integer not null,
	state       text not null,         -- started, ended
	status      text not null,
	body        blob,                  -- the outcome without its output, JSON
	content     blob,                  -- the output: one content row
	output_size integer not null,
	started_at  integer not null,
	ended_at    integer
) strict, without rowid;
create index cell_kernel on cell (kernel, state);
create index cell_branch on cell (branch, started_at);

-- owner: process
create table event (
	session text not null,
	seq     integer not null,
	pid     integer not null,
	kind    text not null,
	body    blob not null,
	at      integer not null,
	primary key (session, seq)
) strict;

-- owner: pykernel
create table kernel (
	id         text primary key,       -- text form of an id, chosen by the turn that commits its first frame
	owner      text not null,          -- the neuron to which outcomes go
	session    text not null,
	branch     blob not null,
	node       text not null,
	workspace  text not null,
	python     text not null,
	state      text not null,          -- booting, running, ending, ended
	reason     text not null,          -- why it ended
	token      text not null,
	bundle     text not null,
	os_pid     integer not null,
	pgid       integer not null,
	leader     text not null,
	epoch      integer not null,
	last_seq   integer not null,       -- last frame number given
	used_at    integer not null,
	created_at integer not null,
	ended_at   integer
) strict, without rowid;
create index kernel_state on kernel (state, used_at);
create index kernel_branch on kernel (branch, created_at);

-- owner: pykernel
create table kernel_frame (
	kernel text not null,
	seq    integer not null,
	cell   text not null,
	body   blob not null,
	at     integer not null,
	primary key (kernel, seq)
) strict, without rowid;

-- owner: pykernel
create table kernel_inbox (
	kernel text not null,
	item   text not null,              -- done:<cell>, call:<id>
	at     integer not null,
	primary key (kernel, item)
) strict, without rowid;

-- owner: pykernel
create table kernel_call (
	kernel text not null,
	id     text not null,
	method text not null,
	state  text not null,              -- started, answered
	body   blob not null,              -- the reply once there is one
	seq    integer not null,           -- frame of the reply
	at     integer not null,
	primary key (kernel, id)
) strict, without rowid;
