package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// N-37: where traces go to: nowhere by default, to what the file names, or to what OpenTelemetry's own variables name.
func TestWhereTracesGo(t *testing.T) {
	const body = "telemetry: {otlp_endpoint: 'http://collector:4318/', headers_file: secret/headers}\n"
	const inFile = "http://collector:4318/v1/traces"
	for _, c := range []struct {
		body string
		env  Env
		want string
		file bool
	}{
		{"", env(), "", false},
		{"telemetry:\n", env(), "", false},
		{body, env(), inFile, true},
		{"telemetry: {otlp_endpoint: 'https://c/x/v1/traces'}\n", env(), "https://c/x/v1/traces", false},
		{"", env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other:4318"), "http://other:4318/v1/traces", false},
		{body, env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other:4318/base/"), "http://other:4318/base/v1/traces", false},
		{body, env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/x"), "http://t/x", false},
		{body, env("OTEL_SDK_DISABLED", "TRUE"), "", false},
		{body, env("OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://other"), "", false},
		{body, env("OTEL_EXPORTER_OTLP_ENDPOINT", ""), inFile, true},
	} {
		got, err := load(t, c.body, c.env, nil)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if got.Telemetry.TracesURL != c.want || got.Telemetry.Problem != nil || (got.Telemetry.HeadersFile != "") != c.file {
			t.Errorf("%q: %+v, want %s", c.body, got.Telemetry, c.want)
		}
		if c.file && got.Telemetry.HeadersFile != filepath.Join(filepath.Dir(got.File()), "secret/headers") {
			t.Errorf("the file of the headers is %s", got.Telemetry.HeadersFile)
		}
		shown := ""
		for _, row := range got.Rows() {
			if row.Key == "telemetry.otlp_endpoint" {
				shown = row.Value
			}
		}
		if shown != c.want {
			t.Errorf("%q: shown as %q, want %q", c.body, shown, c.want)
		}
	}
}

// A mistake in the file is one of the file; one in a variable that is not Soma's own ends nothing, and no value is shown.
func TestWrongTelemetry(t *testing.T) {
	for body, want := range map[string]string{
		"telemetry: {otlp_endpoint: 'http://me:secret@c'}\n": "telemetry.otlp_endpoint",
		"telemetry: {otlp_endpoint: 'c:4317'}\n":             "telemetry.otlp_endpoint",
		"telemetry: {otlp_endpoint: [a]}\n":                  "one value",
		"telemetry: {headers_file: x}\n":                     "needs an otlp_endpoint",
		"telemetry: {nope: x}\n":                             "unknown key",
		"telemetry: yes\n":                                   "keys with values",
	} {
		_, err := load(t, body, env(), nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		if _, err := load(t, "kernel_env: [PATH, "+name+"]\n", env(), nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a python kernel may have %s: %v", name, err)
		}
	}
	c, err := load(t, "", env("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://secret:4317"), nil)
	if err != nil || c.Telemetry.TracesURL != "" || c.Telemetry.Problem == nil || strings.Contains(c.Telemetry.Problem.Error(), "secret") {
		t.Errorf("%+v, %v", c, err)
	}
}

// I-54: a header goes to the endpoint of its own source only, and its value is in no error.
func TestTracesHeader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	body := "telemetry: {otlp_endpoint: 'http://c', headers_file: " + file + "}\n"
	header := func(text, body string, e Env) (string, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load(t, body, e, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.TracesHeader(e)
		all := ""
		for name, value := range got {
			all += name + "=" + value.Reveal()
		}
		return all, err
	}
	variables := env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://e", "OTEL_EXPORTER_OTLP_HEADERS", "api-key=v%20x,")
	for _, c := range []struct {
		text, body string
		env        Env
		want       string
	}{
		{"# mine\n\nAuthorization: Bearer a:b\n", body, env(), "Authorization=Bearer a:b"},
		{"Authorization: Bearer a:b\n", body, variables, "api-key=v x"},
		{"", body, env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=v"), ""},
		{"", "", env(), ""},
	} {
		if got, err := header(c.text, c.body, c.env); err != nil || got != c.want {
			t.Errorf("%q: %q, %v", c.text, got, err)
		}
	}
	for _, text := range []string{
		"secret\n", "Host: secret\n", "a b: secret\n", ": secret\n", "x: sec\x01ret\n", strings.Repeat("x", 16<<10) + "y",
		func() (s string) {
			for i := range 33 {
				s += fmt.Sprintf("x%d: secret\n", i)
			}
			return s
		}(),
	} {
		if got, err := header(text, body, env()); err == nil || strings.Contains(err.Error(), "secret") || got != "" {
			t.Errorf("%.20q: %q, %v", text, got, err)
		}
	}
	if _, err := header("", "", env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://e", "OTEL_EXPORTER_OTLP_HEADERS", "secret")); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	c, err := load(t, body, env(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.TracesHeader(env()); err == nil {
		t.Error("a missing file of headers is no error")
	}
}
