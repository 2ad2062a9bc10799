package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The variables of OpenTelemetry that are heeded. They are not Soma's own: a wrong one is a Problem, not an error.
const (
	otlpEndpoint    = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otlpTraces      = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	otlpHeaders     = "OTEL_EXPORTER_OTLP_HEADERS"
	otlpTraceHeader = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	otelDisabled    = "OTEL_SDK_DISABLED"
	otelTraces      = "OTEL_TRACES_EXPORTER"
)

// tracesPath is where a collector takes traces, below its endpoint.
const tracesPath = "/v1/traces"

// Bounds of the headers that go to a collector.
const (
	maxHeaders     = 32
	maxHeaderBytes = 16 << 10 // of the file or variable
)

// Telemetry says where traces go to.
type Telemetry struct {
	// TracesURL takes traces as OTLP/HTTP; empty: no traces are made.
	TracesURL string
	// HeadersFile holds what is sent along, one `Name: value` a line; empty for none, and where the variables name the endpoint.
	HeadersFile string
	// Problem is why the variables of OpenTelemetry name no endpoint that can be used; nil otherwise.
	Problem error
}

func (c *Config) readTelemetry(n *yaml.Node) error {
	if isNull(n) {
		return nil
	}
	text := func(name string, use func(string) error) func(*yaml.Node) error {
		return func(v *yaml.Node) error {
			if v.Kind != yaml.ScalarNode || isNull(v) {
				return c.fail(v, "telemetry."+name, "one value is expected")
			}
			if err := use(v.Value); err != nil {
				return c.fail(v, "telemetry."+name, err.Error())
			}
			c.sources["telemetry."+name] = FromFile
			return nil
		}
	}
	err := c.mapping(n, "telemetry.", map[string]func(*yaml.Node) error{
		"otlp_endpoint": text("otlp_endpoint", func(s string) (err error) {
			c.Telemetry.TracesURL, err = tracesURL(s)
			return err
		}),
		"headers_file": text("headers_file", func(s string) error {
			if c.Telemetry.HeadersFile = s; s != "" && !filepath.IsAbs(s) {
				c.Telemetry.HeadersFile = filepath.Join(filepath.Dir(c.file), s)
			}
			return nil
		}),
	})
	if err == nil && c.Telemetry.HeadersFile != "" && c.Telemetry.TracesURL == "" {
		return c.fail(n, "telemetry", "headers_file needs an otlp_endpoint")
	}
	return err
}

// tracesURL makes the address of traces from an endpoint.
func tracesURL(endpoint string) (string, error) {
	if checkURL(endpoint) != nil {
		return "", errors.New("an http or https URL without user, password or query is expected: a credential belongs to the headers")
	}
	endpoint = strings.TrimRight(endpoint, "/")
	if strings.HasSuffix(endpoint, tracesPath) {
		return endpoint, nil
	}
	return endpoint + tracesPath, nil
}

// telemetryFromEnv lets the variables of OpenTelemetry go over the file.
func (c *Config) telemetryFromEnv(env Env) {
	none := env.get(otelTraces) == "none" || strings.EqualFold(env.get(otelDisabled), "true")
	endpoint := cmp.Or(env.get(otlpTraces), env.get(otlpEndpoint))
	if !none && endpoint == "" {
		return
	}
	c.Telemetry = Telemetry{}
	c.sources["telemetry.otlp_endpoint"] = FromEnv
	delete(c.sources, "telemetry.headers_file")
	if none {
		return
	}
	c.Telemetry.TracesURL, c.Telemetry.Problem = tracesURL(endpoint)
	name := otlpEndpoint
	if given := env.get(otlpTraces); given != "" {
		if name = otlpTraces; c.Telemetry.Problem == nil {
			c.Telemetry.TracesURL = given // this one is the whole address
		}
	}
	if c.Telemetry.Problem != nil {
		c.Telemetry.Problem = &ValueError{name, c.Telemetry.Problem}
	}
}

// telemetryRows are what `soma config` prints of telemetry, where there is anything.
func (c *Config) telemetryRows() []Row {
	var rows []Row
	for key, value := range map[string]string{"telemetry.otlp_endpoint": c.Telemetry.TracesURL, "telemetry.headers_file": c.Telemetry.HeadersFile} {
		if source, ok := c.sources[key]; ok {
			rows = append(rows, Row{key, value, source})
		}
	}
	return rows
}

// TracesHeader reads what is sent along with traces, by name. It comes from where the endpoint comes from, so that no
// credential goes to another address: the headers file, or the variable. The error names file or variable and no value.
func (c *Config) TracesHeader(env Env) (map[string]Secret, error) {
	if c.sources["telemetry.otlp_endpoint"] == FromEnv {
		header, err := parseHeaders(strings.Split(cmp.Or(env.get(otlpTraceHeader), env.get(otlpHeaders)), ","), "=", url.PathUnescape)
		if err != nil {
			return nil, &ValueError{otlpHeaders, err}
		}
		return header, nil
	}
	if c.Telemetry.HeadersFile == "" {
		return nil, nil
	}
	f, err := os.Open(c.Telemetry.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the headers of traces: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHeaderBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the headers of traces: %w", err)
	}
	if len(text) > maxHeaderBytes {
		return nil, fmt.Errorf("cannot use %s: it is larger than %d bytes", c.Telemetry.HeadersFile, maxHeaderBytes)
	}
	header, err := parseHeaders(strings.Split(string(text), "\n"), ":", func(s string) (string, error) { return s, nil })
	if err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", c.Telemetry.HeadersFile, err)
	}
	return header, nil
}

// parseHeaders reads names and values that a separator divides. The error says which one is wrong, by its number.
func parseHeaders(list []string, separator string, decode func(string) (string, error)) (map[string]Secret, error) {
	header := map[string]Secret{}
	for i, line := range list {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, separator)
		name = strings.TrimSpace(name)
		value, err := decode(strings.TrimSpace(value))
		if !ok || err != nil || !headerName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("header %d is no name with a value", i+1)
		}
		if header[name] = Secret(value); len(header) > maxHeaders {
			return nil, fmt.Errorf("there are more than %d headers", maxHeaders)
		}
	}
	return header, nil
}

// headerName reports whether a name may be that of a header which is not the exporter's own.
func headerName(s string) bool {
	switch strings.ToLower(s) {
	case "", "host", "connection", "content-length", "content-type", "content-encoding", "transfer-encoding", "te", "trailer", "upgrade":
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}) < 0
}
