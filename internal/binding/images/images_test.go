package images

import (
	"os"
	"os/exec"
	"testing"

	"soma/internal/binding"
)

// The function on real files and channels, by its own tests.
func TestPython(t *testing.T) { // P-064
	cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestRouted(t *testing.T) { // P-064
	r, err := binding.NewRouter([]binding.Binding{Binding()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Modules()) != 1 || r.Modules()[0] != "soma_image" || r.Rules() == "" {
		t.Errorf("modules %v, rules %q", r.Modules(), r.Rules())
	}
}
