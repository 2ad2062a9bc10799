package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func load(t *testing.T, body string, e Env, flags map[string]string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if body != "" {
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(file, e, flags)
}

func mustLoad(t *testing.T, body string) *Config {
	t.Helper()
	c, err := load(t, body, env(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// I-03
func TestEachSourceGoesOverTheWeakerOnes(t *testing.T) {
	const body = "max_concurrent: 5\nrecover: hold\nlog_level: warn\n"
	c, err := load(t, body, env("SOMA_MAX_CONCURRENT", "6", "SOMA_LOG_LEVEL", "error", "SOMA_PYTHON", ""),
		map[string]string{"max_concurrent": "7"})
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxConcurrent != 7 || c.LogLevel != slog.LevelError || c.Recover != Hold || c.MaxPykernels != 32 || c.KernelGraceSeconds != 3600 {
		t.Errorf("config %+v", c)
	}
	want := map[string]Row{
		"max_concurrent":          {"max_concurrent", "7", FromFlag},
		"log_level":               {"log_level", "error", FromEnv},
		"recover":                 {"recover", "hold", FromFile},
		"max_pykernels":           {"max_pykernels", "32", FromDefault},
		"kernel_grace_seconds":    {"kernel_grace_seconds", "3600", FromDefault},
		"cell_background_seconds": {"cell_background_seconds", "60", FromDefault},
		"python":                  {"python", "", FromDefault},
	}
	for _, row := range c.Rows() {
		if w, ok := want[row.Key]; ok && row != w {
			t.Errorf("row %+v, want %+v", row, w)
		}
		delete(want, row.Key)
	}
	if len(want) > 0 {
		t.Errorf("no rows for %v", want)
	}
}

// Each setting must be reachable in all three ways, and be printed as it was given.
// I-03
func TestEverySettingFromEverySource(t *testing.T) {
	samples := map[string]string{
		"default_model": "m", "python": "/usr/bin/python3", "kernel_env": "A,B", "recover": "hold", "max_concurrent": "9",
		"log_level": "debug", "max_pykernels": "7", "kernel_grace_seconds": "90", "cell_background_seconds": "0", "store": "postgres://me@db.example/soma",
		"retention": "90d", "listen": "127.0.0.1:7621", "tls_cert": "/etc/soma/tls.crt", "tls_key": "/etc/soma/tls.key",
	}
	for _, s := range Settings() {
		v, ok := samples[s.Key]
		if !ok || s.Usage == "" {
			t.Errorf("%s has no sample or no usage", s.Key)
			continue
		}
		for source, get := range map[Source]func() (*Config, error){
			FromFile: func() (*Config, error) { return load(t, s.Key+": "+v+"\n", env(), nil) },
			FromEnv:  func() (*Config, error) { return load(t, "", env(s.Variable(), v), nil) },
			FromFlag: func() (*Config, error) { return load(t, "", env(), map[string]string{s.Key: v}) },
		} {
			c, err := get()
			if err != nil {
				t.Errorf("%s from %s: %v", s.Key, source, err)
				continue
			}
			for _, row := range c.Rows() {
				if row.Key == s.Key && (row.Value != v || row.Source != source) {
					t.Errorf("%s from %s: %+v", s.Key, source, row)
				}
			}
		}
	}
}

// I-03
func TestMistakesInTheFileHaveLineAndKey(t *testing.T) {
	const model = "models:\n  - name: a\n    type: openai\n    model: x\n"
	for body, want := range map[string]FileError{
		"recover: hold\nmax_concurent: 3\n":                           {Line: 2, Key: "max_concurent"},
		"\n\nrecover: sometimes\n":                                    {Line: 3, Key: "recover"},
		"recover: hold\nrecover: hold\n":                              {Line: 2, Key: "recover"},
		"max_concurrent: 0\n":                                         {Line: 1, Key: "max_concurrent"},
		"max_concurrent: [1]\n":                                       {Line: 1, Key: "max_concurrent"},
		"kernel_grace_seconds: 604801\n":                              {Line: 1, Key: "kernel_grace_seconds"},
		"retention: 30\n":                                             {Line: 1, Key: "retention"},
		"retention: 5s\n":                                             {Line: 1, Key: "retention"},
		"retention: 99999999d\n":                                      {Line: 1, Key: "retention"},
		"log_level: loud\n":                                           {Line: 1, Key: "log_level"},
		"kernel_env:\n  - A\n  - {b: c}\n":                            {Line: 3, Key: "kernel_env"},
		"kernel_env: [\"A=b\"]\n":                                     {Line: 1, Key: "kernel_env"},
		"- a\n- b\n":                                                  {Line: 1},
		"recover: hold\n---\nrecover: resume\n":                       {Line: 2},
		"recover: hold\nlog_level: \"warn\n":                          {Line: 2},
		"recover: hold\n  x: y\n":                                     {Line: 2},
		"recover: *nobody\n":                                          {},
		"models: {}\n":                                                {Line: 1, Key: "models"},
		model + "    base_url: http://h/v1\n    key: sk-1\n":          {Line: 6, Key: "models[0].key"},
		model + "    base_url: ftp://h/v1\n":                          {Line: 2, Key: "models[0]"},
		model + "    base_url: http://u:sk-1@h/v1\n":                  {Line: 2, Key: "models[0]"},
		model + "    base_url: http://h/v1?key=sk-1\n":                {Line: 2, Key: "models[0]"},
		model + "    base_url: http://h/v1\n    prices: {input: 1}\n": {Line: 6, Key: "models[0].prices"},
		model + "    base_url: http://h/v1\n    prices: {input: 1, output: sk-1}\n": {
			Line: 6, Key: "models[0].prices.output"},
		"models:\n- {name: a, type: script, model: tour}\n- {name: a, type: script, model: tour}\n": {
			Line: 3, Key: "models[1].name"},
		"models:\n- {name: a, type: script}\n":                                  {Line: 2, Key: "models[0]"},
		"models:\n- {name: a, type: robot, model: x}\n":                         {Line: 2, Key: "models[0]"},
		"models:\n- {name: \"openai:x\", type: script, model: tour}\n":          {Line: 2, Key: "models[0]"},
		"models:\n- {name: a, type: script, model: tour, key_env: OTHER_KEY}\n": {Line: 2, Key: "models[0]"},
	} {
		_, err := load(t, body, env(), nil)
		var bad *FileError
		if !errors.As(err, &bad) {
			t.Errorf("%q: error %v", body, err)
			continue
		}
		if bad.Line != want.Line || bad.Key != want.Key || filepath.Base(bad.File) != "config.yaml" {
			t.Errorf("%q: line %d key %q: %v", body, bad.Line, bad.Key, err)
		}
		if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "sk-1") {
			t.Errorf("%q: error text %v", body, err)
		}
	}
}

// I-03
func TestFilesWithNothingInThem(t *testing.T) {
	for _, body := range []string{"", "\n", "# nothing\n", "---\n", "python:\nmodels:\n"} {
		if c := mustLoad(t, body); c.MaxConcurrent != 4 {
			t.Errorf("%q: %+v", body, c)
		}
	}
	if _, err := load(t, strings.Repeat("#\n", maxFile), env(), nil); err == nil {
		t.Error("a file over the bound is read")
	}
	if _, err := Load(t.TempDir(), env(), nil); err == nil {
		t.Error("a directory is read as a file")
	}
}

// I-03
func TestWrongVariablesAndFlags(t *testing.T) {
	for where, get := range map[string]func() (*Config, error){
		"SOMA_RECOVER":     func() (*Config, error) { return load(t, "", env("SOMA_RECOVER", "x"), nil) },
		"--max-concurrent": func() (*Config, error) { return load(t, "", env(), map[string]string{"max_concurrent": "x"}) },
		"--nonsense":       func() (*Config, error) { return load(t, "", env(), map[string]string{"nonsense": "x"}) },
	} {
		var bad *ValueError
		if _, err := get(); !errors.As(err, &bad) || bad.Where != where {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// I-53: the environment of a python kernel never holds a provider key, whoever asks for it.
func TestProviderKeysAreNoKernelEnvironment(t *testing.T) {
	const model = "models: [{name: a, type: openai, model: x, base_url: \"http://h/v1\", key_env: MY_KEY}]\n"
	for _, body := range []string{"kernel_env: [A, OPENAI_API_KEY]\n", model + "kernel_env: [MY_KEY]\n", "kernel_env: [MY_KEY]\n" + model} {
		if _, err := load(t, body, env(), nil); err == nil || !strings.Contains(err.Error(), "_KEY") {
			t.Errorf("%q: %v", body, err)
		}
	}
	if _, err := load(t, model, env("SOMA_KERNEL_ENV", "MY_KEY"), nil); err == nil {
		t.Error("the variable lets a key through")
	}
	if c := mustLoad(t, "kernel_env: [A, B_C]\n"); strings.Join(c.KernelEnv, " ") != "A B_C" {
		t.Errorf("names %q", c.KernelEnv)
	}
}

// The table in the docs is the settings themselves.
func TestDocsListEverySetting(t *testing.T) {
	text, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, "")
	want := 0
	for _, s := range Settings() {
		want++
		row := "| `" + s.Key + "` | `" + s.Variable() + "` | " + s.show(c) + " | " + s.Usage + " |\n"
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/settings.md lacks the line\n%s", row)
		}
	}
	if n := strings.Count(string(text), "| `SOMA_"); n != want {
		t.Errorf("docs/settings.md has %d rows for %d settings", n, want)
	}
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, ok := strings.Cut(example, "```")
	if c, err := load(t, example, env(), nil); !ok || err != nil || len(c.Models) == 0 {
		t.Errorf("the example does not load: %v", err)
	}
}
