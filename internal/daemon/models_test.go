package daemon

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"soma/internal/config"
	"soma/wire"
)

// I-04: with a key but no name of a model the refusal lists what the endpoint has.
func TestRefusalListsTheModelsOfTheEndpoint(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer sesame" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"data":[{"id":"beta"},{"id":"alpha"}]}`))
	}))
	defer server.Close()
	vars := map[string]string{"OPENAI_API_KEY": "sesame", "OPENAI_BASE_URL": server.URL + "/v1"}
	env := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	c, err := config.Load(filepath.Join(t.TempDir(), "config.yaml"), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newModels(c, env).Find(t.Context(), "")
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code != wire.NoModel {
		t.Fatalf("Find = %v, want a refusal with code %s", err, wire.NoModel)
	}
	for _, want := range []string{"alpha", "beta"} {
		if !strings.Contains(refusal.Detail, want) {
			t.Errorf("the way out %q does not name %s", refusal.Detail, want)
		}
	}
	if strings.Contains(refusal.Error(), "sesame") {
		t.Error("the refusal shows the key")
	}

	vars["OPENAI_API_KEY"] = "wrong"
	if _, err = newModels(c, env).Find(t.Context(), ""); !errors.As(err, &refusal) || !strings.Contains(refusal.Detail, "does not list") {
		t.Errorf("with a wrong key Find = %v, want one that says so", err)
	}

	// A name is enough, whatever the endpoint says.
	if m, err := newModels(c, env).Find(t.Context(), "openai:gamma"); err != nil || m.Model != "gamma" {
		t.Errorf("Find(openai:gamma) = %+v, %v", m, err)
	}
}

// K-24: only the provider's own endpoint has the provider's prices; a person's own prices go first.
func TestVendor(t *testing.T) {
	for want, m := range map[string]config.Model{
		"openai":         {Type: config.OpenAI, BaseURL: "https://api.openai.com/v1"},
		"127.0.0.1:1234": {Type: config.OpenAI, BaseURL: "http://127.0.0.1:1234/v1"},
		"script":         {Type: config.Script},
		"model:mine":     {Name: "mine", Type: config.OpenAI, BaseURL: "https://api.openai.com/v1", Prices: &config.Prices{}},
	} {
		if got := vendor(m); got != want {
			t.Errorf("vendor(%+v) = %q, want %q", m, got, want)
		}
	}
}
