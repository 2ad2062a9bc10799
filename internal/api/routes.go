package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"soma/wire"
)

// Route is one row of the table, as others may see it.
type Route struct {
	Method string
	Path   string // with {names}
	Access Access
	Body   int64    // most bytes of a request body; 0 if it takes none
	Query  []string // the parameters that it knows
	Stream bool     // answers with an endless text/event-stream
}

type route struct {
	Route
	answer func(*Server, context.Context, *call) (any, error)
	stream func(*Server, context.Context, *call) error
	wait   time.Duration // how long the client may ask the handler to wait
	// owned says that the daemon answers which holds what the path names: for what is written, and for what is not in rows yet.
	owned bool
}

const (
	get  = http.MethodGet
	put  = http.MethodPut
	post = http.MethodPost
)

// Routes returns the table. The caller owns the slice.
func Routes() []Route {
	var all []Route
	for _, r := range routes() {
		all = append(all, r.Route)
	}
	return all
}

// routes is the whole API: what is not here does not exist.
func routes() []route {
	answer := func(method, path string, access Access, body int64,
		h func(*Server, context.Context, *call) (any, error), query ...string) route {
		return route{Route: Route{Method: method, Path: path, Access: access, Body: body, Query: query}, answer: h}
	}
	stream := func(path string, h func(*Server, context.Context, *call) error, query ...string) route {
		return route{Route: Route{Method: get, Path: path, Access: Read, Query: query, Stream: true}, stream: h}
	}
	owned := func(r route) route { r.owned = true; return r }
	table := []route{
		answer(get, "/healthz", Open, 0, health),
		answer(get, "/readyz", Open, 0, ready),
		answer(get, "/metrics", Read, 0, metrics),
		answer(get, "/v1/openapi.yaml", Read, 0, openAPI),
		answer(get, "/v1/status", Read, 0, status),
		answer(get, "/v1/models", Read, 0, models),
		answer(post, "/v1/daemon/stop", Admin, wire.MaxBody, stop),

		answer(get, "/v1/sessions", Read, 0, listSessions, "workspace", "kind", "after", "limit"),
		owned(answer(put, "/v1/sessions/{session}", Operate, wire.MaxBody, openSession)),
		answer(get, "/v1/sessions/{session}", Read, 0, getSession),
		owned(answer(http.MethodDelete, "/v1/sessions/{session}", Operate, 0, closeSession)),
		owned(answer(put, "/v1/sessions/{session}/inputs/{client}", Operate, wire.MaxBody, admit)),
		answer(get, "/v1/sessions/{session}/inputs/{client}", Read, 0, getInput),
		owned(answer(put, "/v1/sessions/{session}/cells/{client}", Operate, wire.MaxCellBody, runCell)),
		owned(answer(put, "/v1/sessions/{session}/shell/{client}", Operate, wire.MaxShellBody, runShell)),
		owned(answer(get, "/v1/sessions/{session}/shell/{client}", Read, 0, getShell)),
		owned(answer(put, "/v1/sessions/{session}/shell/{client}/interrupt", Operate, 0, interruptShell)),
		owned(answer(get, "/v1/sessions/{session}/shell/{client}/output", Read, 0, shellOutput, "offset", "limit")),
		owned(stream("/v1/sessions/{session}/events", followSession, "after")),

		owned(answer(put, "/v1/sessions/{session}/removal", Admin, wire.MaxBody, remove)),
		owned(answer(get, "/v1/sessions/{session}/removal", Read, 0, getRemoval)),
		answer(post, "/v1/prune", Admin, wire.MaxBody, prune),
		answer(get, "/v1/ledger", Read, 0, spent),

		answer(get, "/v1/cells/{cell}", Read, 0, getCell),
		owned(answer(put, "/v1/cells/{cell}/interrupt", Operate, 0, interruptCell)),
		owned(answer(get, "/v1/cells/{cell}/output", Read, 0, cellOutput, "offset", "limit")),
		answer(get, "/v1/cells/{cell}/images/{n}", Read, 0, cellImage),
		answer(get, "/v1/cells/{cell}/trace", Read, 0, cellTrace),

		answer(get, "/v1/kernels", Read, 0, listKernels, "all"),
		owned(answer(get, "/v1/branches/{branch}/kernel", Read, 0, getKernel)),
		owned(stream("/v1/branches/{branch}/kernel/events", followKernel)),
		owned(answer(put, "/v1/branches/{branch}/kernel/restart", Operate, 0, restartKernel)),
		owned(answer(put, "/v1/branches/{branch}/complete", Operate, wire.MaxBody, complete)),
		owned(answer(get, "/v1/branches/{branch}/jobs", Read, 0, listJobs)),
		owned(answer(get, "/v1/branches/{branch}/jobs/recent", Read, 0, recentJobs)),
		owned(answer(get, "/v1/branches/{branch}/jobs/{job}/output", Read, 0, jobOutput, "offset", "limit")),
		owned(stream("/v1/branches/{branch}/jobs/{job}/output/events", followJob, "offset")),
		owned(answer(put, "/v1/branches/{branch}/jobs/{job}/stop", Operate, 0, stopJob)),

		answer(get, "/v1/processes", Read, 0, listProcesses, "all", "workspace", "session", "after", "limit"),
		owned(answer(get, "/v1/processes/{pid}", Read, 0, getProcess, "wait")),
		owned(answer(put, "/v1/processes/{pid}/signals/{client}", Operate, wire.MaxBody, signal)),
		answer(get, "/v1/processes/{pid}/messages", Read, 0, listMessages, "after", "limit"),
		answer(get, "/v1/processes/{pid}/ledger", Read, 0, listLedger, "after", "limit"),

		stream("/v1/events", followHints),

		answer(get, "/v1/neurons/{owner}/{kind}/{key}/journal", Read, 0, journal, "feed", "after", "limit"),
		owned(stream("/v1/neurons/{owner}/{kind}/{key}/journal/entries", followJournal, "feed", "after")),
		answer(get, "/v1/deadletters", Read, 0, listDeadLetters, "after", "limit"),
		answer(put, "/v1/deadletters/{letter}/redrive", Operate, 0, redrive),
		answer(http.MethodDelete, "/v1/deadletters/{letter}", Operate, 0, discard),
		answer(get, "/v1/traces/{id}", Read, 0, trace),
	}
	for i := range table {
		if slices.Contains(table[i].Query, "wait") {
			table[i].wait = wire.MaxWait
		}
	}
	return table
}

// register enters the table into the mux. A path that is there under other methods answers with these, and any other path
// is not found.
func (s *Server) register(table []route) {
	methods := map[string][]string{}
	for _, r := range table {
		methods[r.Path] = append(methods[r.Path], r.Method)
		s.mux.Handle(r.Method+" "+r.Path, s.route(r))
	}
	for path, allowed := range methods {
		s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			s.fail(w, r, wire.Errorf(wire.MethodNotAllowed, "%s is not possible here", r.Method).
				Do("use "+strings.Join(allowed, " or ")))
		})
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, nowhere())
	})
}

func nowhere() *wire.Error {
	return wire.Errorf(wire.NotFound, "there is nothing at this path").Do("see /v1/openapi.yaml")
}
