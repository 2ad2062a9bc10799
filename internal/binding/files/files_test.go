package files

import (
	"testing"

	"soma/internal/pykernel/pykerneltest"
)

// The tests in Python, on real files and against a real kernel.
func TestPython(t *testing.T) { pykerneltest.Unittest(t, "test_files", "test_kernel") }
