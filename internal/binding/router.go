package binding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
)

// Bounds of one host call, in bytes.
const (
	MaxMethod  = 100
	MaxArgs    = 8 << 20
	MaxReply   = 8 << 20
	maxMessage = 2 << 10
)

// defaultWait bounds a call whose route names no bound.
const defaultWait = time.Minute

// Codes that the router itself answers with.
const (
	codeInvalid  = "invalid"
	codeUnknown  = "not_found"
	codeFailed   = "failed"
	codeInternal = "internal"
	codeTimeout  = "timeout"
	codeTooLarge = "too_large"
)

var (
	methodForm = regexp.MustCompile(`^[a-z][a-z0-9_]*\.[a-z][a-z0-9_.]*$`)
	moduleForm = regexp.MustCompile(`^soma_[a-z0-9_]+$`)
)

// Router answers the host calls of all bindings. It never changes after NewRouter and is safe for concurrent use.
type Router struct {
	// Log, if set before the first call, is told of routes that panic.
	Log *slog.Logger

	modules    []string
	sources    []bundle.Module
	rules      string
	namespaces map[string]map[string]Route // by namespace, then by method
}

// NewRouter takes the bindings in the order in which kernels set them up and models read their rules. The error names a
// module, namespace or method that is malformed or there twice.
func NewRouter(bindings []Binding) (*Router, error) {
	r := &Router{namespaces: map[string]map[string]Route{}}
	owner := map[string]string{} // of modules and namespaces
	take := func(b Binding, what, name string) error {
		if other, taken := owner[what+name]; taken {
			return fmt.Errorf("cannot route binding %s: %s %s is that of %s", b.Name, what, name, other)
		}
		owner[what+name] = b.Name
		return nil
	}
	var rules []string
	for _, b := range bindings {
		for i, m := range append([]bundle.Module{{Name: b.Module, Source: b.Source}}, b.Beside...) {
			if i == 0 && m.Name == "" {
				continue // routes alone
			}
			if !moduleForm.MatchString(m.Name) || len(m.Source) == 0 {
				return nil, fmt.Errorf("cannot route binding %s: module %q has a bad name or no source", b.Name, m.Name)
			}
			if err := take(b, "module ", m.Name); err != nil {
				return nil, err
			}
			r.sources = append(r.sources, m)
			if i == 0 {
				r.modules = append(r.modules, m.Name)
			}
		}
		if text := strings.TrimSpace(b.Rules); text != "" {
			rules = append(rules, text)
		}
		for _, route := range b.Routes {
			if !methodForm.MatchString(route.Method) || len(route.Method) > MaxMethod || route.Call == nil || route.Policy == "" {
				return nil, fmt.Errorf("cannot route binding %s: method %q has a bad name, no policy or no function", b.Name, route.Method)
			}
			space := namespace(route.Method)
			if r.namespaces[space] == nil {
				r.namespaces[space] = map[string]Route{}
			}
			if err := take(b, "method ", route.Method); err != nil {
				return nil, err
			}
			if other, taken := owner["namespace "+space]; taken && other != b.Name {
				return nil, fmt.Errorf("cannot route binding %s: namespace %s is that of %s", b.Name, space, other)
			}
			owner["namespace "+space] = b.Name
			r.namespaces[space][route.Method] = route
		}
	}
	r.rules = strings.Join(rules, "\n\n")
	return r, nil
}

func namespace(method string) string {
	space, _, _ := strings.Cut(method, ".")
	return space
}

// Modules names the modules that a kernel sets up, in order.
func (r *Router) Modules() []string { return r.modules }

// Sources returns the modules of all bindings, for the bundle.
func (r *Router) Sources() []bundle.Module { return r.sources }

// Rules is what a model reads of all bindings.
func (r *Router) Rules() string { return r.rules }

// Policy says what happens to a call that a dead daemon had begun. A method that is not known may have been one's of the
// daemon before: it is Once.
func (r *Router) Policy(method string) neuron.Policy {
	if route, ok := r.namespaces[namespace(method)][method]; ok {
		return route.Policy
	}
	return neuron.Once
}

// Call answers one host call: JSON, or a code with a message. It never panics and ends within the route's bound if the route
// heeds its context.
func (r *Router) Call(ctx context.Context, c Caller, method string, args json.RawMessage) (json.RawMessage, *pykernel.CallError) {
	if method == "" || len(args) == 0 || !json.Valid(args) {
		return nil, refuse(codeInvalid, "invalid host request")
	}
	if len(args) > MaxArgs {
		return nil, refuse(codeTooLarge, fmt.Sprintf("the arguments of a host call have at most %d bytes, these have %d", MaxArgs, len(args)))
	}
	routes, ok := r.namespaces[namespace(method)]
	route, known := routes[method]
	switch {
	case len(method) > MaxMethod:
		return nil, refuse(codeInvalid, fmt.Sprintf("a method has at most %d characters", MaxMethod))
	case !ok:
		return nil, refuse(codeUnknown, fmt.Sprintf("no binding answers %q", method))
	case !known:
		return nil, refuse(codeUnknown, fmt.Sprintf("binding %s has no method %q", namespace(method), method))
	}
	wait := route.Wait
	if wait == 0 {
		wait = defaultWait
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	value, err := r.enter(limited, route, c, args)
	var no *Refusal
	switch {
	case errors.As(err, &no):
		return nil, refuse(no.Code, no.Text)
	case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil, refuse(codeTimeout, fmt.Sprintf("%s was not done within %s", method, wait))
	case err != nil:
		return nil, refuse(codeFailed, err.Error())
	}
	reply, err := json.Marshal(value)
	if err != nil {
		return nil, refuse(codeInternal, fmt.Sprintf("the reply of %s cannot be encoded", method))
	}
	if len(reply) > MaxReply {
		return nil, refuse(codeTooLarge, fmt.Sprintf("the reply of %s has %d bytes, more than %d: ask for less", method, len(reply), MaxReply))
	}
	return reply, nil
}

// enter is the door to a route: a panic behind it is the call's answer.
func (r *Router) enter(ctx context.Context, route Route, c Caller, args json.RawMessage) (value any, err error) {
	defer func() {
		if v := recover(); v != nil {
			if r.Log != nil {
				r.Log.Error("host call panicked", "method", route.Method, "call", c.ID, "panic", v, "stack", string(debug.Stack()))
			}
			value, err = nil, &Refusal{Code: codeInternal, Text: route.Method + " panicked"}
		}
	}()
	return route.Call(ctx, c, args)
}

func refuse(code, text string) *pykernel.CallError {
	if text = strings.ToValidUTF8(text, "?"); len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	return &pykernel.CallError{Code: code, Message: text}
}
