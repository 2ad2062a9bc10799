package api

import (
	"context"
	"net/http"
	"time"

	"soma/wire"
)

// Answered is one request that was answered, for diagnosis. It holds nothing that the client wrote.
type Answered struct {
	Route  string // method and pattern of the table; another text, or none, outside of it
	Status int    // 0 if nothing was answered
	Took   time.Duration
	Stream bool // Took is how long it was followed
}

// observe tells of a request when its handler is done. r points to the request as it was then.
func (s *Server) observe(w *answerWriter, r **http.Request, began time.Time) {
	if s.Observe == nil {
		return
	}
	s.Observe(Answered{
		Route: (*r).Pattern, Status: w.status, Took: time.Since(began), Stream: w.Header().Get("Content-Type") == "text/event-stream",
	})
}

func metrics(s *Server, _ context.Context, _ *call) (any, error) {
	if s.Metrics == nil {
		return nil, wire.Errorf(wire.NotFound, "this daemon counts nothing")
	}
	kind, text, err := s.Metrics()
	if err != nil {
		return nil, err
	}
	return document{kind, text}, nil
}
