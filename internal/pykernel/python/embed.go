// Package python holds the sources that run inside a python kernel (standard library only, Python 3.11 or newer) and
// embeds them. It must not know how they are unpacked or started.
package python

import "embed"

// Sources holds the modules of the python kernel, without their tests.
//
//go:embed *.py
var Sources embed.FS
