package files

import (
	_ "embed"

	"soma/internal/binding"
	"soma/internal/pykernel/bundle"
)

var (
	//go:embed soma_files.py
	source []byte
	//go:embed soma_search.py
	search []byte
	//go:embed soma_trace.py
	trace []byte
	//go:embed rules.md
	rules string
)

// Binding returns `files`.
func Binding() binding.Binding {
	return binding.Binding{
		Name: "files", Module: "soma_files", Source: source, Rules: rules,
		Beside: []bundle.Module{{Name: "soma_search", Source: search}, {Name: "soma_trace", Source: trace}},
	}
}
