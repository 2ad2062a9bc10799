package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	"soma/ident"
	"soma/message"
)

// Histories are fed by commits, so that a step reads nothing; they stay within their bound, and longest unused ones go first.
func TestHistories(t *testing.T) {
	var hs Branches
	read := func(context.Context, ident.ID, uint64, uint64) ([]message.Message, int, error) {
		t.Error("a read of what is kept")
		return nil, 0, nil
	}
	branches := make([]ident.ID, 10)
	for i := range branches {
		branches[i] = ident.New(time.Now())
		for seq := range uint64(4) {
			hs.Committed(branches[i], seq+1, message.Message{Text: fmt.Sprint(i, seq)}, maxBytes/30)
		}
	}
	if hs.bytes > maxBytes || len(hs.kept) != hs.order.Len() || len(hs.kept) != 7 {
		t.Errorf("%d bytes, %d branches, %d in order", hs.bytes, len(hs.kept), hs.order.Len())
	}
	if hs.kept[branches[0]] != nil || hs.kept[branches[9]] == nil {
		t.Error("not the longest unused one went")
	}
	got, err := hs.Through(t.Context(), read, branches[9], 3)
	if err != nil || len(got) != 3 || got[2].Text != "9 2" || cap(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
	// What does not follow on what is kept changes nothing.
	for _, seq := range []uint64{3, 4, 7} {
		hs.Committed(branches[9], seq, message.Message{Text: "other"}, 0)
	}
	hs.Committed(branches[0], 5, message.Message{}, 0)
	if got, _ := hs.Through(t.Context(), read, branches[9], 4); len(got) != 4 || got[3].Text != "9 3" {
		t.Errorf("%v", got)
	}
	for _, b := range branches {
		hs.Forget(b)
	}
	if hs.bytes != 0 || len(hs.kept) != 0 || hs.order.Len() != 0 {
		t.Errorf("%d bytes, %d branches are left", hs.bytes, len(hs.kept))
	}
}
