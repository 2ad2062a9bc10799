package run

import (
	_ "embed"

	"soma/internal/binding"
	"soma/internal/pykernel/bundle"
)

var (
	//go:embed soma_run.py
	names []byte
	//go:embed soma_jobs.py
	book []byte
	//go:embed soma_job.py
	job []byte
	//go:embed soma_feed.py
	feed []byte
	//go:embed soma_spawn.py
	spawn []byte
	//go:embed rules.md
	rules string
)

// Binding returns the binding: `run` and `jobs`.
func Binding() binding.Binding {
	return binding.Binding{
		Name: "run", Module: "soma_run", Source: names, Rules: rules,
		Beside: []bundle.Module{
			{Name: "soma_jobs", Source: book}, {Name: "soma_job", Source: job},
			{Name: "soma_feed", Source: feed}, {Name: "soma_spawn", Source: spawn},
		},
	}
}
