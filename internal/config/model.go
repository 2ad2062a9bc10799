package config

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ModelType names the adapter that speaks to a model.
type ModelType string

// The adapters.
const (
	OpenAI ModelType = "openai" // any endpoint with OpenAI-compatible chat completions
	Script ModelType = "script" // plays a YAML script
)

// Model is everything that is needed to reach one model, except its key.
type Model struct {
	Name string
	Type ModelType
	// BaseURL is the endpoint without a slash at its end, such as https://api.openai.com/v1; empty for a script.
	BaseURL string
	// Model is the name that the endpoint knows; for a script "tour" (built in) or the absolute path of a file.
	Model string
	// KeyEnv or KeyFile says where the key is; both are empty for an endpoint that needs none.
	KeyEnv, KeyFile string
	// Prices is nil if they are not known: then a cost is unknown, not 0.
	Prices *Prices
}

// Prices are nano-dollars per million tokens of each class. Classes that the person left out cost what input costs.
type Prices struct{ Input, CacheRead, CacheWrite, Output int64 }

// parsePrice reads dollars per million tokens, exactly: up to nine digits before and after the point.
func parsePrice(s string) (int64, error) {
	whole, frac, _ := strings.Cut(s, ".")
	digits := whole + frac + strings.Repeat("0", max(0, 9-len(frac)))
	if whole == "" || len(whole) > 9 || len(frac) > 9 || strings.Trim(digits, "0123456789") != "" {
		return 0, errors.New("no price")
	}
	return strconv.ParseInt(digits, 10, 64)
}

// check completes a model of the config file; relative files count from dir.
func (m *Model) check(dir string) error {
	switch {
	case m.Name == "":
		return errors.New("name is missing")
	case strings.HasPrefix(m.Name, "openai:"), strings.HasPrefix(m.Name, "ollama:"), strings.HasPrefix(m.Name, "script:"):
		return errors.New("the name must not begin like openai:MODEL, ollama:MODEL or script:FILE")
	case m.Model == "":
		return errors.New("model is missing")
	case m.KeyEnv != "" && m.KeyFile != "":
		return errors.New("both key_env and key_file are given")
	}
	switch m.Type {
	case OpenAI:
		if err := checkURL(m.BaseURL); err != nil {
			return err
		}
		m.BaseURL = strings.TrimRight(m.BaseURL, "/")
		if m.KeyFile != "" && !filepath.IsAbs(m.KeyFile) {
			m.KeyFile = filepath.Join(dir, m.KeyFile)
		}
	case Script:
		if m.BaseURL != "" || m.KeyEnv != "" || m.KeyFile != "" {
			return errors.New("a script has no base_url, key_env or key_file")
		}
		if m.Model != builtinScript && !filepath.IsAbs(m.Model) {
			m.Model = filepath.Join(dir, m.Model)
		}
	case "":
		return errors.New("type is missing: openai or script")
	default:
		return errors.New("type is neither openai nor script")
	}
	return nil
}

// checkURL keeps secrets out of a URL, so that it may be shown.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("base_url must be an http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("base_url must hold no user, password or query: a key belongs to key_env or key_file")
	}
	return nil
}

func (m Model) describe() string {
	parts := []string{"name=" + m.Name, "type=" + string(m.Type)}
	for _, p := range [][2]string{{"base_url", m.BaseURL}, {"model", m.Model}, {"key_env", m.KeyEnv}, {"key_file", m.KeyFile}} {
		if p[1] != "" {
			parts = append(parts, p[0]+"="+p[1])
		}
	}
	if m.Prices != nil {
		parts = append(parts, "prices=given")
	}
	return strings.Join(parts, " ")
}

// Key reads the model's key; it is empty for a model that needs none. The error names the variable or file.
func (m Model) Key(env Env) (Secret, error) {
	switch {
	case m.KeyEnv != "":
		if key := strings.TrimSpace(env.get(m.KeyEnv)); key != "" {
			return Secret(key), nil
		}
		return "", fmt.Errorf("cannot use model %s: %s is not set", m.Name, m.KeyEnv)
	case m.KeyFile != "":
		f, err := os.Open(m.KeyFile)
		if err != nil {
			return "", fmt.Errorf("cannot use model %s: %w", m.Name, err)
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, 16<<10))
		if err != nil {
			return "", fmt.Errorf("cannot use model %s: %w", m.Name, err)
		}
		if key := strings.TrimSpace(string(text)); key != "" {
			return Secret(key), nil
		}
		return "", fmt.Errorf("cannot use model %s: %s is empty", m.Name, m.KeyFile)
	}
	return "", nil
}
