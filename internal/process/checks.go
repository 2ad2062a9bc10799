package process

import (
	"os"
	"path/filepath"

	"soma/wire"
)

func checkFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return wire.Errorf(wire.Unprocessable, "cannot use workspace %s: %v", path, err)
	case !info.IsDir():
		return wire.Errorf(wire.Unprocessable, "workspace %s is not a folder", path)
	}
	return nil
}

// checkPython refuses an interpreter that cannot be started; its version was checked by who chose it, and is checked again
// by the python kernel's start.
func (h *Host) checkPython(path string) error {
	if path == "" {
		path = h.o.Python
	}
	if path == "" {
		return wire.Errorf(wire.NoPython, "no python3 was found").Do("install Python 3.11 or newer, or name one with --python")
	}
	info, err := os.Stat(path)
	if err != nil || !filepath.IsAbs(path) || info.IsDir() || info.Mode()&0o111 == 0 {
		return wire.Errorf(wire.NoPython, "%s is not a program that can be started", path).Do("name a Python 3.11 or newer with --python")
	}
	return nil
}
