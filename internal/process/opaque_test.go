package process_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"soma/internal/agent/model"
	"soma/message"
	"soma/wire"
)

// thinker answers each request with blocks of its own.
type thinker struct{ blocks []message.Opaque }

func (p thinker) Stream(context.Context, model.Request) (model.Stream, error) {
	return &thinking{blocks: p.blocks}, nil
}

type thinking struct {
	blocks []message.Opaque
	at     int
}

func (s *thinking) Next(context.Context) (model.Event, error) {
	s.at++
	switch s.at {
	case 1:
		return model.Event{Kind: model.Token, Text: "hm"}, nil
	case 2:
		return model.Event{Kind: model.Done, End: &model.End{Stop: model.StopEnd, Opaque: s.blocks}}, nil
	}
	return model.Event{}, io.EOF
}

func (s *thinking) Usage() message.Usage { return message.Usage{Output: 1} }
func (s *thinking) Close() error         { return nil }

// K-29: what a provider has sealed into an answer comes back to it with that message as it was, after any number of turns and a
// restart: signatures are over exact texts.
func TestOpaqueBlocksStay(t *testing.T) {
	texts := []string{"I é think\n", "<&>\u2028\u2029\x01\"\\", "c2lnbmF0dXJl+/=="}
	var blocks []message.Opaque
	for _, text := range texts {
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, message.Opaque{Family: "sealed", Kind: "reasoning", Data: data})
	}
	// An object whose spaces and escapes a JSON encoder would change.
	texts = append(texts, "")
	blocks = append(blocks, message.Opaque{Family: "sealed", Kind: "reasoning", Data: []byte("{ \"a\" : \"<&>\" ,\n \"b\":1.0}")})
	w := newWorld(t, nil)
	w.stage.scripts["m"] = thinker{blocks}
	pid := w.open("s", "m", true)
	for i, id := range []string{"a", "b", "c"} {
		w.admit("s", id, id)
		w.awaitState(pid, wire.Blocked, "waiting for input")
		w.awaitEvent("s", wire.TurnEnded, i+1, nil)
		if i == 1 {
			w.restart()
		}
	}
	asked := w.stage.requests()
	answers := 0
	for _, m := range asked[len(asked)-1].messages {
		if m.Role != message.Assistant {
			continue
		}
		answers++
		if len(m.Opaque) != len(blocks) {
			t.Fatalf("%d blocks", len(m.Opaque))
		}
		for i, o := range m.Opaque {
			var text string
			if err := json.Unmarshal(o.Data, &text); texts[i] != "" && (err != nil || text != texts[i]) {
				t.Errorf("block %d is %q, %v, was %q", i, text, err, texts[i])
			}
			if o.Family != "sealed" || o.Kind != "reasoning" || string(o.Data) != string(blocks[i].Data) {
				t.Errorf("block %+v, was %+v", o, blocks[i])
			}
		}
	}
	if len(asked) != 3 || answers != 2 {
		t.Errorf("%d requests, %d answers in the last", len(asked), answers)
	}
}
