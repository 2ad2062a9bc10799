package storetest

import (
	"testing"

	"soma/internal/neuron"
)

// Engine tells the suite how to open what it checks.
type Engine struct {
	// Open opens an empty store with the given sequences. The suite closes it.
	Open func(t *testing.T, sequences []neuron.Sequence) neuron.Store
	// Reopen closes s and opens what it left; nil for an engine that keeps nothing.
	Reopen func(t *testing.T, s neuron.Store) neuron.Store
	// Crash opens a copy of what a kill at this moment would leave of s, which stays open; nil for an engine that keeps
	// nothing.
	Crash func(t *testing.T, s neuron.Store) neuron.Store
	// Take gives the places to the node of f, whoever holds them, and returns the fence with them added; nil for an engine
	// for one node, whose Claim gives all and which gives TurnRow.Pos.
	Take func(t testing.TB, s neuron.Store, f neuron.Fence, places neuron.PlaceSet) neuron.Fence
	// SQL is set for an engine that runs the statements of operations and queries. Its database holds the table of Schema
	// beside its own.
	SQL bool
}

// Schema is the suite's own table, for operations.
const Schema = `create table suite_row (series text not null, n bigint not null, body text not null, primary key (series, n));
create table suite_series (series text not null primary key, last bigint not null);`

// Sequences are the counters of the suite's operations; every Open gets them.
func Sequences() []neuron.Sequence {
	return []neuron.Sequence{{
		Name: "suite",
		Last: "select last from suite_series where series = ?",
		Save: "update suite_series set last = ? where series = ?",
	}, {
		Name: "rows",
		Last: "select coalesce(max(n), 0) from suite_row where series = ?",
	}}
}

// Run runs the whole suite against an engine.
func Run(t *testing.T, e Engine) {
	cases := []struct {
		name string
		sql  bool // needs an engine that runs statements
		keep bool // needs one that survives
		many bool // needs one for several nodes
		fn   func(*testing.T, Engine)
	}{
		{"EmptyStore", false, false, false, testEmpty},
		{"Epoch", false, false, false, testEpoch},
		{"Fence", false, false, false, testFence},
		{"Places", false, false, true, testPlaces},
		{"Keys", false, false, false, testKeys},
		{"OutboxOfPlaces", false, false, false, testOutboxOfPlaces},
		{"ExecutionsOfPlaces", false, false, false, testExecutionsOfPlaces},
		{"Shared", true, false, false, testShared},
		{"Turns", false, false, false, testTurns},
		{"Checkpoint", false, false, false, testCheckpoint},
		{"Steps", false, false, false, testSteps},
		{"Tallies", false, false, false, testTallies},
		{"WindowByEntries", false, false, false, testWindowByEntries},
		{"WindowByBytes", false, false, false, testWindowByBytes},
		{"WindowWithinTurn", false, false, false, testWindowWithinTurn},
		{"SparseOut", false, false, false, testSparseOut},
		{"Reset", false, false, false, testReset},
		{"Dedupe", false, false, false, testDedupe},
		{"DedupeWindow", false, false, false, testDedupeWindow},
		{"DuplicateInGroup", false, false, false, testDuplicateInGroup},
		{"GroupIsAtomic", false, false, false, testGroupIsAtomic},
		{"Outbox", false, false, false, testOutbox},
		{"Executions", false, false, false, testExecutions},
		{"DeadLetters", false, false, false, testDeadLetters},
		{"Cancelled", false, false, false, testCancelled},
		{"Model", false, false, false, testModel},
		{"ReadersAndWriter", false, false, false, testReadersAndWriter},
		{"Contents", true, false, false, testContents},
		{"Operations", true, false, false, testOperations},
		{"Guard", true, false, false, testGuard},
		{"BadOperation", true, false, false, testBadOperation},
		{"Numbers", true, false, false, testNumbers},
		{"NumbersAfterRedo", true, false, false, testNumbersAfterRedo},
		{"Query", true, false, false, testQuery},
		{"Reopen", false, true, false, testReopen},
		{"Crash", false, true, false, testCrash},
		{"NumbersAfterReopen", true, true, false, testNumbersAfterReopen},
	}
	for _, c := range cases {
		if c.sql && !e.SQL || c.keep && (e.Reopen == nil || e.Crash == nil) || c.many && e.Take == nil {
			continue // the engine has no such side
		}
		t.Run(c.name, func(t *testing.T) { c.fn(t, e) })
	}
}

func open(t *testing.T, e Engine) neuron.Store {
	t.Helper()
	s := e.Open(t, Sequences())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
