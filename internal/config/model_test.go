package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const threeModels = `
default_model: local
models:
  - name: big
    type: openai
    base_url: https://host.example/v1/
    model: giant-1
    key_env: BIG_KEY
    prices: {input: 2.50, cache_read: 0.0375, output: 10}
  - name: local
    type: openai
    base_url: http://127.0.0.1:8080/v1
    model: small-1
    key_file: keys/local
  - name: play
    type: script
    model: my.yaml
`

// I-03
func TestModelsFromTheFile(t *testing.T) {
	c := mustLoad(t, threeModels)
	dir := filepath.Dir(c.file)
	big, local, play := c.Models[0], c.Models[1], c.Models[2]
	if *big.Prices != (Prices{Input: 2_500_000_000, CacheRead: 37_500_000, CacheWrite: 2_500_000_000, Output: 10_000_000_000}) {
		t.Errorf("prices %+v", *big.Prices)
	}
	if big.BaseURL != "https://host.example/v1" || local.KeyFile != filepath.Join(dir, "keys/local") || local.Prices != nil {
		t.Errorf("models %+v %+v", big, local)
	}
	if play.Type != Script || play.Model != filepath.Join(dir, "my.yaml") {
		t.Errorf("model %+v", play)
	}
	if m, err := c.Resolve("", env()); err != nil || m.Name != "local" {
		t.Errorf("default %+v, %v", m, err)
	}
	if m, err := c.Resolve("big", env()); err != nil || m.Model != "giant-1" {
		t.Errorf("by name %+v, %v", m, err)
	}
	c = mustLoad(t, strings.Replace(threeModels, "default_model: local", "", 1))
	if m, err := c.Resolve("", env("OPENAI_API_KEY", "k")); err != nil || m.Name != "big" {
		t.Errorf("first %+v, %v", m, err)
	}
}

// I-03: of a key only its place is shown.
func TestKeysAreReadAndNotShown(t *testing.T) {
	c := mustLoad(t, threeModels)
	e := env("BIG_KEY", " sk-big \n")
	if key, err := c.Models[0].Key(e); err != nil || key.Reveal() != "sk-big" {
		t.Errorf("key %q, %v", key.Reveal(), err)
	}
	if _, err := c.Models[0].Key(env()); err == nil || !strings.Contains(err.Error(), "BIG_KEY is not set") {
		t.Errorf("error %v", err)
	}
	local := c.Models[1]
	if _, err := local.Key(e); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(local.KeyFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(local.KeyFile, []byte("sk-local\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := local.Key(e); err != nil || key.Reveal() != "sk-local" {
		t.Errorf("key %q, %v", key.Reveal(), err)
	}
	if err := os.WriteFile(local.KeyFile, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := local.Key(e); err == nil {
		t.Error("an empty key file gives a key")
	}
	all := fmt.Sprintf("%+v %+v", c, c.Rows())
	if strings.Contains(all, "sk-") || !strings.Contains(all, "key_env=BIG_KEY") {
		t.Errorf("shown: %s", all)
	}
}

// I-04
func TestModelsFromTheEnvironment(t *testing.T) {
	c := mustLoad(t, "")
	for _, s := range []struct {
		name      string
		env       Env
		base, key string
		model     string
	}{
		{"openai:gpt", env("OPENAI_API_KEY", "k"), "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt"},
		{"openai:gpt", env("OPENAI_API_KEY", "k", "OPENAI_BASE_URL", "http://h:1/v1/"), "http://h:1/v1", "OPENAI_API_KEY", "gpt"},
		{"openai:gpt", env("OPENAI_BASE_URL", "http://h:1/v1"), "http://h:1/v1", "", "gpt"},
		{"openai:llama:8b", env("OLLAMA_HOST", "h:1"), "http://h:1/v1", "", "llama:8b"},
		{"ollama:llama:8b", env("OLLAMA_HOST", "h:1", "OPENAI_API_KEY", "k"), "http://h:1/v1", "", "llama:8b"},
		{"ollama:m", env("OLLAMA_HOST", "0.0.0.0"), "http://127.0.0.1:11434/v1", "", "m"},
		{"ollama:m", env("OLLAMA_HOST", ":1"), "http://127.0.0.1:1/v1", "", "m"},
		{"ollama:m", env("OLLAMA_HOST", "[::1]:1"), "http://[::1]:1/v1", "", "m"},
		{"ollama:m", env("OLLAMA_HOST", "https://h/"), "https://h/v1", "", "m"},
	} {
		m, err := c.Resolve(s.name, s.env)
		if err != nil || m.Type != OpenAI || m.Name != s.name || m.BaseURL != s.base || m.KeyEnv != s.key || m.Model != s.model {
			t.Errorf("%s: %+v, %v; want %v", s.name, m, err, s)
		}
	}
	for _, s := range []struct {
		env          Env
		prefix, base string
	}{
		{env("OPENAI_API_KEY", "k", "OLLAMA_HOST", "h"), "openai:", "https://api.openai.com/v1"},
		{env("OLLAMA_HOST", "h"), "ollama:", "http://h:11434/v1"},
	} {
		var choose *ChooseModelError
		if _, err := c.Resolve("", s.env); !errors.As(err, &choose) || choose.Prefix != s.prefix || choose.Endpoint.BaseURL != s.base {
			t.Errorf("no name: %v", err)
		}
	}
	for _, e := range []Env{env("OLLAMA_HOST", "http://u:secret@h"), env("OPENAI_BASE_URL", "http://u:secret@h"), env("OLLAMA_HOST", "a b")} {
		var bad *ValueError
		if _, err := c.Resolve("openai:m", e); !errors.As(err, &bad) || strings.Contains(err.Error(), "secret") {
			t.Errorf("bad address: %v", err)
		}
	}
}

// I-04
func TestWithNoModelTwoLinesSayWhatToDo(t *testing.T) {
	c := mustLoad(t, "")
	for _, name := range []string{"", "openai:gpt", "ollama:m"} {
		var none *NoModelError
		_, err := c.Resolve(name, env("OPENAI_API_KEY", ""))
		if !errors.As(err, &none) {
			t.Errorf("%q: %v", name, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "OPENAI_API_KEY") || !strings.Contains(lines[0], c.file) ||
			!strings.Contains(lines[1], "script:tour") {
			t.Errorf("text %q", lines)
		}
	}
}

// I-04
func TestScripts(t *testing.T) {
	c := mustLoad(t, "")
	for name, want := range map[string]string{"script:tour": "tour", "script:/x/y.yaml": "/x/y.yaml"} {
		if m, err := c.Resolve(name, env()); err != nil || m.Type != Script || m.Model != want || m.Name != name {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for name, want := range map[string]string{
		"script:tour": "script:tour", "script:y.yaml": "script:/x/y.yaml", "script:../tour": "script:/tour",
		"script:/a/b": "script:/a/b", "openai:m": "openai:m", "": "",
	} {
		if got := AbsoluteModel(name, "/x"); got != want {
			t.Errorf("AbsoluteModel(%q) = %q", name, got)
		}
	}
	for _, name := range []string{"script:", "script:y.yaml", "openai:", "nobody", "tour", "other:x"} {
		var unknown *UnknownModelError
		if _, err := c.Resolve(name, env("OPENAI_API_KEY", "k")); !errors.As(err, &unknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// I-04
func TestProviderVariablesAreNames(t *testing.T) {
	c := mustLoad(t, threeModels)
	got := c.ProviderVariables(env("OLLAMA_HOST", "h", "OPENAI_API_KEY", "", "BIG_KEY", "sk-1", "PATH", "/bin"))
	if strings.Join(got, " ") != "BIG_KEY OLLAMA_HOST" {
		t.Errorf("names %q", got)
	}
}

// K-24: money is exact.
func TestPrices(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "0.000000001": 1, "2.5": 2_500_000_000, "999999999.999999999": 999_999_999_999_999_999, "15.": 15_000_000_000,
	} {
		if got, err := parsePrice(s); err != nil || got != want {
			t.Errorf("%s: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", ".5", "-1", "1e3", "1,5", "0.0000000001", "1000000000", "1.2.3", "+1", "٣"} {
		if got, err := parsePrice(s); err == nil {
			t.Errorf("%s: %d", s, got)
		}
	}
}
