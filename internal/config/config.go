package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Recover says what happens to a process that was running when the daemon died.
type Recover string

// The two policies of recovery.
const (
	Resume Recover = "resume"
	Hold   Recover = "hold"
)

// Config is the merged settings of one instance. It is a value that nobody changes after [Load].
type Config struct {
	Models        []Model
	DefaultModel  string // a name for [Config.Resolve]; empty if none was chosen
	Python        string // path or name of the interpreter; empty: found at run time
	KernelEnv     []string
	Recover       Recover
	MaxConcurrent int // processes that run at once
	LogLevel      slog.Level
	MaxPykernels  int // live python kernels
	// KernelGraceSeconds is how long a python kernel without a daemon lives.
	KernelGraceSeconds int
	// CellBackgroundSeconds is after how many seconds an agent's cell goes on in the background; 0: never.
	CellBackgroundSeconds int
	Telemetry             Telemetry
	// Retention is how long sessions at rest stay; 0: until somebody removes them.
	Retention time.Duration
	// Store is the database; empty: the SQLite file of the home.
	Store Database
	// Listen is a TCP address, empty for the default; see [Config.Address].
	Listen          string
	TLSCert, TLSKey string // paths of PEM files; empty: a certificate of the home's own where one is needed

	file    string
	sources map[string]Source
}

// File is the path of the settings file, whether or not it exists.
func (c *Config) File() string { return c.file }

// Source says where a value came from.
type Source string

// The sources, weakest first.
const (
	FromDefault Source = "default"
	FromFile    Source = "file"
	FromEnv     Source = "env"
	FromFlag    Source = "flag"
)

// Setting is one key of the settings, for commands that offer or print it.
type Setting struct {
	// Key is the name in config.yaml; the flag has hyphens for its underscores.
	Key string
	// Usage is one line on what the setting does.
	Usage string

	parse func(*Config, string) error // from one text: a flag, a variable, a YAML scalar
	show  func(*Config) string
}

// Settings lists all keys but `models` and `telemetry`, which config.yaml alone can hold. The caller owns the slice.
func Settings() []Setting {
	return []Setting{
		text("default_model", "model for agents that name none", func(c *Config) *string { return &c.DefaultModel }),
		text("python", "python interpreter for cells", func(c *Config) *string { return &c.Python }),
		{
			Key: "kernel_env", Usage: "variables that python kernels get besides the usual ones, comma-separated",
			parse: func(c *Config, s string) error { return setKernelEnv(c, strings.Split(s, ",")) },
			show:  func(c *Config) string { return strings.Join(c.KernelEnv, ",") },
		},
		{
			Key: "recover", Usage: "what a process does after a crash of the daemon: resume or hold",
			parse: func(c *Config, s string) error {
				if c.Recover = Recover(s); c.Recover != Resume && c.Recover != Hold {
					return errors.New("resume or hold is expected")
				}
				return nil
			},
			show: func(c *Config) string { return string(c.Recover) },
		},
		number("max_concurrent", "processes that run at once", 1, 10_000, func(c *Config) *int { return &c.MaxConcurrent }),
		{
			Key: "log_level", Usage: "debug, info, warn or error",
			parse: func(c *Config, s string) error {
				levels := map[string]slog.Level{
					"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
				}
				level, ok := levels[s]
				if !ok {
					return errors.New("debug, info, warn or error is expected")
				}
				c.LogLevel = level
				return nil
			},
			show: func(c *Config) string { return strings.ToLower(c.LogLevel.String()) },
		},
		number("max_pykernels", "live python kernels", 1, 1000, func(c *Config) *int { return &c.MaxPykernels }),
		number("kernel_grace_seconds", "how many seconds a python kernel without a daemon lives", 1, maxGrace,
			func(c *Config) *int { return &c.KernelGraceSeconds }),
		number("cell_background_seconds", "after how many seconds an agent's cell goes on in the background; 0: never", 0, 3600,
			func(c *Config) *int { return &c.CellBackgroundSeconds }),
		retention(),

		{
			Key: "store", Usage: "PostgreSQL database that several daemons share, such as postgres://host/name; none: a SQLite file in the home",
			parse: func(c *Config, s string) (err error) { c.Store, err = parseDatabase(s); return err },
			show:  func(c *Config) string { return c.Store.Shown() },
		},
		{
			Key: "listen", Usage: "TCP address to listen on besides the socket; with PostgreSQL 127.0.0.1:0 unless another is named",
			parse: func(c *Config, s string) error { c.Listen = s; return parseListen(s) },
			show:  func(c *Config) string { return c.Listen },
		},
		text("tls_cert", "PEM file with the certificate of the TCP listener; none: one of the home's own", func(c *Config) *string { return &c.TLSCert }),
		text("tls_key", "PEM file with the key of tls_cert", func(c *Config) *string { return &c.TLSKey }),
	}
}

// minRetention keeps a slip of the pen from taking what was just done.
const minRetention = time.Minute

func retention() Setting {
	return Setting{
		Key: "retention", Usage: "how long sessions at rest stay, such as 90d or 36h; off: until they are removed",
		parse: func(c *Config, s string) error {
			if s == "off" {
				c.Retention = 0
				return nil
			}
			d, err := ParseSpan(s)
			if err != nil || d < minRetention {
				return errors.New("off, or a time span of a minute at least, such as 90d, is expected")
			}
			c.Retention = d
			return nil
		},
		show: func(c *Config) string {
			switch {
			case c.Retention == 0:
				return "off"
			case c.Retention%day == 0:
				return strconv.Itoa(int(c.Retention/day)) + "d"
			}
			return c.Retention.String()
		},
	}
}

// maxGrace is the longest grace that a python kernel takes, in seconds.
const maxGrace = 604_800

const day = 24 * time.Hour

// ParseSpan reads a time span: one of package time, or a number of days such as 30d. It is 0 at least and a hundred years at most.
func ParseSpan(s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.ParseUint(n, 10, 16)
		if err != nil || days > 36_500 {
			return 0, fmt.Errorf("%q is no number of days from 0 to 36500", s)
		}
		return time.Duration(days) * day, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > 36_500*day {
		return 0, fmt.Errorf("%q is no time span such as 30d or 12h", s)
	}
	return d, nil
}

func text(key, usage string, field func(*Config) *string) Setting {
	return Setting{
		Key: key, Usage: usage,
		parse: func(c *Config, s string) error { *field(c) = s; return nil },
		show:  func(c *Config) string { return *field(c) },
	}
}

func number(key, usage string, low, high int, field func(*Config) *int) Setting {
	return Setting{
		Key: key, Usage: usage,
		parse: func(c *Config, s string) error {
			n, err := strconv.Atoi(s)
			if err != nil || n < low || n > high {
				return fmt.Errorf("a number from %d to %d is expected", low, high)
			}
			*field(c) = n
			return nil
		},
		show: func(c *Config) string { return strconv.Itoa(*field(c)) },
	}
}

// Variable is the environment variable of the setting.
func (s Setting) Variable() string { return "SOMA_" + strings.ToUpper(s.Key) }

// Flag is the setting's flag, without the leading hyphens.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Key, "_", "-") }

// Load merges the settings: defaults, then file (which may be missing), then SOMA_* variables, then flags by key. A set but
// empty variable counts as not set. Errors: [*FileError] with file, line and key for anything wrong in the file,
// [*ValueError] for a variable or flag.
func Load(file string, env Env, flags map[string]string) (*Config, error) {
	c := &Config{
		Recover: Resume, MaxConcurrent: 4, LogLevel: slog.LevelInfo, MaxPykernels: 32, KernelGraceSeconds: 3600, CellBackgroundSeconds: 60,
		file: file, sources: map[string]Source{},
	}
	switch body, err := readFile(file); {
	case os.IsNotExist(err), errors.Is(err, syscall.ENOTDIR): // a home that is no directory is refused where it is made
	case err != nil:
		return nil, &FileError{File: file, Problem: err.Error()}
	default:
		if err := c.readYAML(body); err != nil {
			return nil, err
		}
	}
	known := map[string]bool{}
	for _, s := range Settings() {
		known[s.Key] = true
		if v := env.get(s.Variable()); v != "" {
			if err := s.parse(c, v); err != nil {
				return nil, &ValueError{s.Variable(), err}
			}
			c.sources[s.Key] = FromEnv
		}
		if v, ok := flags[s.Key]; ok {
			if err := s.parse(c, v); err != nil {
				return nil, &ValueError{"--" + s.Flag(), err}
			}
			c.sources[s.Key] = FromFlag
		}
	}
	c.telemetryFromEnv(env)
	for key := range flags {
		if !known[key] {
			return nil, &ValueError{"--" + key, errors.New("there is no such setting")}
		}
	}
	if err := errors.Join(c.checkDatabase(), c.checkKernelEnv()); err != nil {
		return nil, err
	}
	return c, nil
}

// ValueError says which variable or flag holds a wrong value, and why.
type ValueError struct {
	Where string
	Err   error
}

func (e *ValueError) Error() string { return fmt.Sprintf("cannot use %s: %v", e.Where, e.Err) }
func (e *ValueError) Unwrap() error { return e.Err }

// Row is one line of what `soma config` prints.
type Row struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Rows gives every setting with its value and source, sorted by key, models by their place in the file. Of a model's key it
// says where it comes from and never what it is.
func (c *Config) Rows() []Row {
	var rows []Row
	for _, s := range Settings() {
		rows = append(rows, Row{s.Key, s.show(c), cmp.Or(c.sources[s.Key], FromDefault)})
	}
	rows = append(rows, c.telemetryRows()...)
	for i, m := range c.Models {
		rows = append(rows, Row{fmt.Sprintf("models[%d]", i), m.describe(), FromFile})
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return strings.Compare(strings.TrimRight(a.Key, "0123456789]"), strings.TrimRight(b.Key, "0123456789]"))
	})
	return rows
}

func setKernelEnv(c *Config, names []string) error {
	c.KernelEnv = nil
	for _, name := range names {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if strings.ContainsAny(name, "= \t\n\x00") {
			return errors.New("names of variables are expected")
		}
		c.KernelEnv = append(c.KernelEnv, name)
	}
	return nil
}

// checkKernelEnv keeps every provider key out of python kernels, wherever the list came from.
func (c *Config) checkKernelEnv() error {
	for _, name := range c.KernelEnv {
		if slices.Contains(collectorVariables, name) || slices.Contains(databaseVariables, name) {
			return &ValueError{"kernel_env", fmt.Errorf("%s holds credentials and never reaches a python kernel", name)}
		}
		secret := slices.Contains(providerVariables, name) ||
			slices.ContainsFunc(c.Models, func(m Model) bool { return m.KeyEnv == name })
		if secret {
			return &ValueError{"kernel_env", fmt.Errorf("%s belongs to a provider and never reaches a python kernel", name)}
		}
	}
	return nil
}
