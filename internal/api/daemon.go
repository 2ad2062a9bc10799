package api

import (
	"context"
	_ "embed"

	"soma/wire"
)

//go:embed openapi.yaml
var description []byte

// OpenAPI returns the description of the API, OpenAPI 3.1 in YAML. The caller must not change it.
func OpenAPI() []byte { return description }

func health(*Server, context.Context, *call) (any, error) { return wire.Health{OK: true}, nil }

func openAPI(*Server, context.Context, *call) (any, error) {
	return document{"application/yaml", description}, nil
}

func status(s *Server, ctx context.Context, _ *call) (any, error) {
	st, err := s.Daemon.Status(ctx)
	if err != nil {
		return nil, err
	}
	st.Kernels, st.Models, st.ProviderEnv = some(st.Kernels), some(st.Models), some(st.ProviderEnv)
	if st.Processes == nil {
		st.Processes = map[string]int{}
	}
	return st, nil
}

func models(s *Server, ctx context.Context, _ *call) (any, error) {
	all, err := s.Daemon.Models(ctx)
	if err != nil {
		return nil, err
	}
	return wire.List[wire.Model]{Items: some(all)}, nil
}

func stop(s *Server, ctx context.Context, c *call) (any, error) {
	in, err := decode[wire.Stop](c)
	if err != nil {
		return nil, err
	}
	return s.Daemon.Stop(ctx, in)
}

// some returns a list that is written as [] when it is empty.
func some[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// page cuts items, which were asked for with one more than limit, and says where the next page begins.
func page[T any](items []T, limit int, place func(T) string) wire.List[T] {
	if len(items) <= limit {
		return wire.List[T]{Items: some(items)}
	}
	return wire.List[T]{Items: items[:limit], Next: place(items[limit-1])}
}
