//go:build !crash

package daemon

import (
	"io/fs"

	"soma/internal/api"
	"soma/internal/neuron"
)

// The crash suite's build has other ones of these, which can let things out too early.

func (d *daemon) neuronStore() neuron.Store { return d.store }

func (d *daemon) sessions() api.Sessions { return d.host }

func (d *daemon) migrations() fs.FS { return nil }
