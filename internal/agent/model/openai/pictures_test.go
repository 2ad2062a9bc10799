package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"soma/internal/agent/model"
	"soma/message"
)

// shownBy is a conversation in which one message calls k cells, each of which shows one image of this size.
func shownBy(k int, size int64) model.Request {
	r := ask()
	a := message.Message{Role: message.Assistant}
	var results []message.Message
	for i := range k {
		id := fmt.Sprint("c", i)
		a.Calls = append(a.Calls, message.Call{ID: id, Tool: "python", Arguments: json.RawMessage("{}")})
		results = append(results, message.Message{Role: message.Tool, CallID: id, Text: "ok", Images: []message.Image{
			{Media: "image/png", Content: fmt.Sprint("bytes of ", i), Size: size, Name: fmt.Sprint(i, ".png")},
		}})
	}
	r.Messages = append(append(r.Messages, a), results...)
	r.Image = func(_ context.Context, content string) ([]byte, error) {
		if content == "bytes of 1" {
			return nil, nil
		}
		return []byte(content), nil
	}
	return r
}

// sent returns the messages of each request that an endpoint got, which refuses with this status where a request has images.
func sent(t *testing.T, status int) (*Client, *[]string) {
	var got []string
	c := endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var q struct{ Messages json.RawMessage }
		if err := json.Unmarshal(b, &q); err != nil {
			t.Error(err)
		}
		got = append(got, string(q.Messages))
		if status != 0 && strings.Contains(string(b), "image_url") {
			http.Error(w, `{"error":{"message":"no images here"}}`, status)
			return
		}
		bytesOf(plain)(w, r)
	})
	return c, &got
}

// K-30, P-064: images go to the model in a message of their own after the results that showed them, before whatever comes next;
// one whose bytes are gone is named.
func TestImages(t *testing.T) {
	c, got := sent(t, 0)
	r := shownBy(3, 10)
	r.Messages = append(r.Messages, message.Message{Role: message.User, Text: "and?"})
	if _, _, err := run(t, c, r); err != nil {
		t.Fatal(err)
	}
	calls := `{"content":null,"role":"assistant","tool_calls":[`
	for i := range 3 {
		calls += fmt.Sprintf(`{"function":{"arguments":"{}","name":"python"},"id":"c%d","type":"function"},`, i)
	}
	want := `[{"content":"hi","role":"user"},` + strings.TrimSuffix(calls, ",") + `]},` +
		`{"content":"ok","role":"tool","tool_call_id":"c0"},` +
		`{"content":"ok\n[image 1 (1.png) is not kept any more]","role":"tool","tool_call_id":"c1"},` +
		`{"content":"ok","role":"tool","tool_call_id":"c2"},` +
		`{"content":[{"text":"image 1 (0.png) of call c0:","type":"text"},{"image_url":{"url":"data:image/png;base64,Ynl0ZXMgb2YgMA=="},"type":"image_url"},` +
		`{"text":"image 1 (2.png) of call c2:","type":"text"},{"image_url":{"url":"data:image/png;base64,Ynl0ZXMgb2YgMg=="},"type":"image_url"}],"role":"user"},` +
		`{"content":"and?","role":"user"}]`
	if (*got)[0] != want {
		t.Errorf("messages\n got %s\nwant %s", (*got)[0], want)
	}
}

// K-15: a request shows the newest images up to its bounds in number and bytes, and says of older ones that they are not repeated.
func TestImagesAreBounded(t *testing.T) {
	c, got := sent(t, 0)
	for size, want := range map[int64]int{10: maxPictures, 3 << 20: 2} {
		*got = nil
		r := shownBy(12, size)
		if _, _, err := run(t, c, r); err != nil {
			t.Fatal(err)
		}
		m := (*got)[0]
		if n := strings.Count(m, "image_url\":{"); n != want || strings.Count(m, "not repeated]") != 12-want {
			t.Errorf("%d images of %d bytes shown, %d said to be not repeated", n, size, strings.Count(m, "not repeated]"))
		}
		if !strings.Contains(m, "image 1 (11.png) of call c11") || !strings.Contains(m, "[image 1 (0.png) not repeated]") {
			t.Errorf("not the newest: %s", m)
		}
	}
}

// A model that takes no images is asked again without them, and from then on at once: else its conversation would be stuck.
func TestModelWithoutEyes(t *testing.T) {
	c, got := sent(t, http.StatusBadRequest)
	for range 2 {
		if a, _, err := run(t, c, shownBy(1, 10)); err != nil || a.Message.Text != "Hello" {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	if len(*got) != 3 || !strings.Contains((*got)[2], "[image 1 (0.png) not shown: the model takes none]") {
		t.Errorf("requests %q", *got)
	}
	// It may have been one bad image: later ones are shown again.
	since, _ := c.blind.Load(shownBy(1, 10).Model)
	c.blind.Store(shownBy(1, 10).Model, since.(time.Time).Add(-blindTime))
	if _, _, err := run(t, c, shownBy(1, 10)); err != nil || len(*got) != 5 || !strings.Contains((*got)[3], "image_url") {
		t.Errorf("later: %v, requests %q", err, *got)
	}
	c, got = sent(t, http.StatusUnauthorized)
	if _, _, err := run(t, c, shownBy(1, 10)); model.ErrorOf(err).Class != model.Fatal || len(*got) != 1 {
		t.Errorf("a refused key: %v after %d requests", err, len(*got))
	}
	r := shownBy(1, 10)
	r.Image = func(context.Context, string) ([]byte, error) { return nil, errors.New("disk") }
	if _, _, err := run(t, c, r); model.ErrorOf(err).Class != model.Retryable || len(*got) != 1 {
		t.Errorf("an image that cannot be read: %v", err)
	}
}

// An image's bytes are not counted as text where the endpoint reports no usage.
func TestImagesAreNotText(t *testing.T) {
	c := endpoint(t, 0, bytesOf(`data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n"))
	r := shownBy(1, 1<<20)
	r.Image = func(context.Context, string) ([]byte, error) { return make([]byte, 1<<20), nil }
	if _, u, err := run(t, c, r); err != nil || !u.Estimated || u.Input < imageTokens || u.Input > 2*imageTokens {
		t.Errorf("usage %+v, %v", u, err)
	}
}
