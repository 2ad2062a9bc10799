package script

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/template"
	"time"

	"soma/internal/agent/model"
)

// MaxFile bounds a script file, in bytes.
const MaxFile = 1 << 20

// Script is a parsed script. It never changes and is safe for concurrent use; it implements model.Provider.
type Script struct {
	file  string
	name  string
	speed float64
	pace  time.Duration
	steps []step
}

// step is one answer. Templates are nil where the file says nothing.
type step struct {
	line   int
	cond   *template.Template
	say    *template.Template
	calls  []call
	delay  time.Duration
	pace   time.Duration
	usage  *usage
	faults []fault
}

type call struct {
	tool string
	// python holds the code of a cell; else arguments holds the text of the arguments as it is sent.
	python    *template.Template
	timeoutMS int64
	arguments *template.Template
}

type usage struct{ input, cacheRead, cacheWrite, output, reasoning int64 }

// fault makes attempts fail, after some tokens.
type fault struct {
	attempts []int64 // empty: all
	after    int64
	err      model.Error
}

//go:embed builtin/*.yaml
var builtin embed.FS

// Load returns the built-in script of this name, or the one in the file at this path. A path has a slash or a dot in it, or
// is no built-in name. Errors name the file, and for a bad script the line.
func Load(ref string) (*Script, error) {
	if !strings.ContainsAny(ref, `/\.`) {
		data, err := builtin.ReadFile("builtin/" + ref + ".yaml")
		if err == nil {
			return Parse(ref+".yaml", data)
		}
	}
	f, err := os.Open(ref)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot find script %q: no such file, and the built-in scripts are: %s", ref, strings.Join(Builtin(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the script: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the script: %w", err)
	}
	return Parse(ref, data)
}

// Builtin names the scripts that come with the program, sorted.
func Builtin() []string {
	entries, err := builtin.ReadDir("builtin")
	if err != nil {
		panic(err) // embedded
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Name is what the script calls itself.
func (s *Script) Name() string { return s.name }

// WithSpeed returns the script at another speed: 1 as written, 2 twice as fast, 0 without any delay.
func (s *Script) WithSpeed(speed float64) *Script {
	out := *s
	out.speed = max(speed, 0)
	return &out
}

func (s *Script) scaled(d time.Duration) time.Duration {
	if s.speed == 0 {
		return 0
	}
	return time.Duration(float64(d) / s.speed)
}
