// Package flow runs graphs of operations on the branches of a session.
//
// A [Builder] gathers [Node]s and the edges between them into a [Graph]; [Run] works it through, [Start] does so while the caller
// goes on, [Stream] yields each node as it ends.
//
//	var b flow.Builder
//	b.Add(flow.Node{ID: "read", Do: read})
//	b.Add(flow.Node{ID: "check", Do: check, Gate: true}, "read")
//	b.Add(flow.Node{ID: "write", Operation: "write"}, "check")
//	graph, err := b.Build()
//	result, err := flow.Run(ctx, s, graph, flow.Options{})
//
// What decides about a node:
//
//   - It waits for all its predecessors, and holds no slot meanwhile; [Options].Concurrency nodes run at once.
//   - It runs if at least one of its edges passes, or if it has none. An edge from a node that was skipped or cancelled never
//     passes; one with a [Condition] passes if that holds. Else the node is skipped, and so are those for whom that was the last hope.
//   - A failure is data: dependents see it in [In].Before, unless the failed node says [SkipDependents]. A condition that fails
//     fails its node.
//   - A gate that rejects, or fails, vetoes all that comes after it, however far and whatever else leads there.
//   - Every node ends exactly once, as completed, failed, skipped or cancelled, and is announced before and told of afterwards:
//     as signals on the session's observer ([NodeQueued], [NodeStarted], …) and to [Options].Progress.
//
// A root runs on the default branch, every other node on a clone of it that has joined the session before anything starts, unless a
// node names its branch. Clones stay in the session; [Result].Branches says which node had which.
//
// With [On] a flow is reactive: results and events ask for further nodes while it runs. With a [Journal] what has ended is not run
// again by a later run of the same graph.
//
// Nothing runs in the background but the nodes of a flow that has been started, in at most Concurrency goroutines and one for
// notices; [Handle].Wait waits for them. Operations, conditions, builders and callbacks are the program's: no lock is held while
// they run, and their panics are errors of what they belong to.
//
// The package imports session, ident and the standard library; sessions know nothing of it.
package flow
