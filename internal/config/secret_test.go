package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// I-54: a key that lands in a print, a log line or JSON by mistake is not seen.
// I-03
func TestSecretsDoNotPrint(t *testing.T) {
	const value = "sk-live-123"
	type wrapped struct{ Key Secret }
	w := wrapped{value}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", w.Key, "all", w)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", w.Key, "all", w)
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		fmt.Sprint(w), fmt.Sprint(w.Key), fmt.Sprintf("%s %v %+v %#v %q %x %d", w.Key, w, w, w, w.Key, w.Key, w.Key),
		fmt.Sprintf("%x", w), string(text), log.String(), fmt.Errorf("no %w: %v", fmt.Errorf("x"), w).Error(),
	} {
		if strings.Contains(s, value) || strings.Contains(s, fmt.Sprintf("%x", value)) {
			t.Errorf("the secret shows in %s", s)
		}
		if !strings.Contains(s, placeholder) {
			t.Errorf("nothing says that a secret was here: %s", s)
		}
	}
	if w.Key.Reveal() != value {
		t.Error("Reveal does not give the value")
	}
}
