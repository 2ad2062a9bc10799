package api

import (
	"context"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"soma/wire"
)

// handler returns the whole of the server behind one door: first the checks that do not depend on the route, in this order
// and before any path is looked at, then the route.
func (s *Server) handler(d door, unknown *strangers) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w := &answerWriter{ResponseWriter: out}
		defer s.observe(w, &r, time.Now())
		defer s.rescue(w, &r)
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set(wire.HeaderVersion, strconv.Itoa(wire.Version))
		limit := http.NewResponseController(w)
		_ = limit.SetWriteDeadline(time.Now().Add(defaultTimeout + writeLimit))
		if r.ContentLength != 0 {
			// It holds until decode has the body. A body that nobody wants is read to its end by net/http.
			_ = limit.SetReadDeadline(time.Now().Add(s.reading))
		}
		access, refusal := s.admitted(d, r)
		if refusal != nil {
			if refusal.Code == wire.Unauthorized {
				h.Set("WWW-Authenticate", "Bearer")
			}
			s.fail(w, r, refusal)
			return
		}
		if access >= Read {
			unknown.known(r.Context())
		}
		if r.URL.Path == "*" || path.Clean(r.URL.Path) != r.URL.Path { // the mux would redirect, or answer in its own way
			s.fail(w, r, nowhere())
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), accessKey{}, access))
		s.mux.ServeHTTP(w, r)
	})
}

type accessKey struct{}

// admitted makes the checks of a request that come before its route, and says what its sender may do.
func (s *Server) admitted(d door, r *http.Request) (Access, *wire.Error) {
	if d.unix && stranger(r.Context()) {
		return Nobody, wire.Errorf(wire.Forbidden, "this daemon belongs to another user")
	}
	if !d.hosts[strings.ToLower(r.Host)] {
		return Nobody, wire.Errorf(wire.ForbiddenHost, "the Host header names another server").
			Do("use the address that the daemon listens on")
	}
	for _, origin := range r.Header.Values("Origin") {
		if origin != d.scheme+r.Host {
			return Nobody, wire.Errorf(wire.ForbiddenOrigin, "requests of other web pages are refused")
		}
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return Nobody, wire.Errorf(wire.ForbiddenOrigin, "requests of other web pages are refused")
		}
	}
	access := s.credential(r)
	if access < Read && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
		return Nobody, wire.Errorf(wire.Unauthorized, "the token is missing or not the one of this home").
			Do("send the text of the home's token file as Authorization: Bearer")
	}
	if v := r.Header.Get(wire.HeaderVersion); v != "" && v != strconv.Itoa(wire.Version) {
		return Nobody, wire.Errorf(wire.WireVersion, "the daemon speaks wire version %d, the client another one", wire.Version).
			Do("stop the daemon and start it again with the client's program")
	}
	return access, nil
}

// credential returns what the request's token allows; without one it is Open.
func (s *Server) credential(r *http.Request) Access {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return Open
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Open
	}
	return max(Open, s.Authorize(token))
}

// route returns the handler of one row: the checks that depend on it, then its work, under its deadline.
func (s *Server) route(row route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access, _ := r.Context().Value(accessKey{}).(Access)
		if access >= Read {
			w.Header().Set(wire.HeaderBuild, s.Build)
		}
		c, refusal := s.accept(row, access, w, r)
		if refusal != nil {
			s.fail(w, r, refusal)
			return
		}
		if row.stream != nil {
			if err := s.streamed(row, c); err != nil {
				s.fail(w, r, err)
			}
			return
		}
		timeout := s.timeout + row.wait
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout + writeLimit))
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		done, err := s.elsewhere(row, ctx, c)
		if done {
			return
		}
		var body any
		if err == nil {
			body, err = row.answer(s, ctx, c)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.answer(w, r, body)
	})
}

// accept makes the checks of a request that depend on its route.
func (s *Server) accept(row route, access Access, w http.ResponseWriter, r *http.Request) (*call, *wire.Error) {
	if r.Method != row.Method { // the mux takes HEAD for GET
		w.Header().Set("Allow", row.Method)
		return nil, wire.Errorf(wire.MethodNotAllowed, "%s is not possible here", r.Method)
	}
	if access < row.Access && !(access == Peer && row.owned) {
		return nil, wire.Errorf(wire.Forbidden, "this token may not do that: it needs the level %s", row.Access)
	}
	if row.Body > 0 {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return nil, wire.Errorf(wire.UnsupportedMedia, "the content type is not application/json")
		}
	}
	if row.Body == 0 && r.ContentLength != 0 {
		return nil, wire.Errorf(wire.BadRequest, "this request takes no body")
	}
	return newCall(row, w, r)
}
