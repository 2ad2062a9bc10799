package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

const builtinScript = "tour"

const (
	openAIKey  = "OPENAI_API_KEY"
	openAIURL  = "OPENAI_BASE_URL"
	ollamaHost = "OLLAMA_HOST"
)

// collectorVariables may hold credentials, too, and reach no python kernel either.
var collectorVariables = []string{otlpHeaders, otlpTraceHeader}

// providerVariables give access to a provider. None of them reaches a python kernel.
var providerVariables = []string{openAIKey, openAIURL, ollamaHost}

// ProviderVariables returns the names of the provider variables that are set, sorted, so that a client can tell when its
// daemon lacks one. No value is in it.
func (c *Config) ProviderVariables(env Env) []string {
	names := slices.Clone(providerVariables)
	for _, m := range c.Models {
		if m.KeyEnv != "" {
			names = append(names, m.KeyEnv)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(n string) bool { return env.get(n) == "" })
}

// NoModelError says that no model is at hand. Its text is two lines with the ways out.
type NoModelError struct{ ConfigFile string }

func (e *NoModelError) Error() string {
	return fmt.Sprintf("no model at hand: set %s or %s, or list one under models: in %s\n"+
		"to try without one, run: soma run --model script:tour \"study this folder\"", openAIKey, ollamaHost, e.ConfigFile)
}

// ChooseModelError says that an endpoint is at hand but no model name. Prefix is what stands before the name in --model,
// Endpoint reaches the list of the models.
type ChooseModelError struct {
	Prefix   string
	Endpoint Model
}

func (e *ChooseModelError) Error() string {
	return fmt.Sprintf("cannot choose a model of %s: say which, as in --model %sNAME", e.Endpoint.BaseURL, e.Prefix)
}

// UnknownModelError says that a name means no model.
type UnknownModelError struct {
	Name  string
	Known []string
}

func (e *UnknownModelError) Error() string {
	known := append(slices.Clone(e.Known), "openai:MODEL", "ollama:MODEL", "script:tour", "script:FILE")
	return fmt.Sprintf("cannot find model %q: known are %s", e.Name, strings.Join(known, ", "))
}

// AbsoluteModel makes the file of script:FILE absolute, counted from dir; other names stay as they are. A client calls it
// with its working directory before it hands a name to the daemon.
func AbsoluteModel(name, dir string) string {
	file, ok := strings.CutPrefix(name, "script:")
	if !ok || file == builtinScript || file == "" || filepath.IsAbs(file) {
		return name
	}
	return "script:" + filepath.Join(dir, file)
}

// Resolve finds the model that name means: one of the config, openai:MODEL, ollama:MODEL, script:tour or script:FILE (an
// absolute path). With an empty name it is the default model, else the first of the config. Errors: [*UnknownModelError];
// [*ChooseModelError] when only an endpoint of the environment is known; [*NoModelError] when nothing is.
func (c *Config) Resolve(name string, env Env) (Model, error) {
	if name == "" {
		name = c.DefaultModel
	}
	if name == "" && len(c.Models) > 0 {
		return c.Models[0], nil
	}
	for _, m := range c.Models {
		if m.Name == name {
			return m, nil
		}
	}
	prefix, rest, _ := strings.Cut(name, ":")
	switch {
	case name == "":
		return Model{}, c.chooseFrom(env)
	case prefix == "script" && (rest == builtinScript || filepath.IsAbs(rest)):
		return Model{Name: name, Type: Script, Model: rest}, nil
	case prefix == "openai" && rest != "":
		return endpoint(name, rest, env, openAIEndpoint, ollamaEndpoint, c.file)
	case prefix == "ollama" && rest != "":
		return endpoint(name, rest, env, ollamaEndpoint, nil, c.file)
	}
	var known []string
	for _, m := range c.Models {
		known = append(known, m.Name)
	}
	return Model{}, &UnknownModelError{name, known}
}

type endpointOf func(Env) (Model, bool, error)

func endpoint(name, model string, env Env, first, second endpointOf, file string) (Model, error) {
	m, ok, err := first(env)
	if err == nil && !ok && second != nil {
		m, ok, err = second(env)
	}
	if err != nil {
		return Model{}, err
	}
	if !ok {
		return Model{}, &NoModelError{file}
	}
	m.Name, m.Model = name, model
	return m, nil
}

func (c *Config) chooseFrom(env Env) error {
	for _, at := range []struct {
		prefix string
		find   endpointOf
	}{{"openai:", openAIEndpoint}, {"ollama:", ollamaEndpoint}} {
		switch m, ok, err := at.find(env); {
		case err != nil:
			return err
		case ok:
			return &ChooseModelError{at.prefix, m}
		}
	}
	return &NoModelError{c.file}
}

func openAIEndpoint(env Env) (Model, bool, error) {
	m := Model{Type: OpenAI, BaseURL: "https://api.openai.com/v1"}
	if env.get(openAIKey) != "" {
		m.KeyEnv = openAIKey
	}
	base := env.get(openAIURL)
	if base != "" {
		if err := checkURL(base); err != nil {
			return Model{}, false, &ValueError{openAIURL, err}
		}
		m.BaseURL = strings.TrimRight(base, "/")
	}
	return m, m.KeyEnv != "" || base != "", nil
}

// ollamaEndpoint reads OLLAMA_HOST in the forms that people set: host, host:port, :port, or a URL. An address to listen on
// at every interface is reached on the loopback.
func ollamaEndpoint(env Env) (Model, bool, error) {
	host := strings.TrimSpace(env.get(ollamaHost))
	if host == "" {
		return Model{}, false, nil
	}
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	u, err := url.Parse(host)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https" {
		return Model{}, false, &ValueError{ollamaHost, fmt.Errorf("an address such as 127.0.0.1:11434 is expected")}
	}
	name, port := u.Hostname(), u.Port()
	switch name {
	case "", "0.0.0.0", "::":
		name = "127.0.0.1"
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if port == "" && u.Scheme == "http" {
		port = "11434"
	}
	if port != "" {
		name += ":" + port
	}
	base := u.Scheme + "://" + name + strings.TrimRight(u.Path, "/") + "/v1"
	return Model{Type: OpenAI, BaseURL: base}, true, nil
}
