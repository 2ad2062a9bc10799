package output

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"soma/ident"
	"soma/internal/binding"
	"soma/internal/neuron"
)

// Bounds of a page of shell output, in bytes.
const (
	MinPage     = 4
	MaxPage     = 64 << 10
	defaultPage = 4000
)

var (
	//go:embed soma_out.py
	source []byte
	//go:embed rules.md
	rules string
)

// ErrUnknown is returned by Shells for a command that the branch does not have.
var ErrUnknown = errors.New("no such shell command")

// Shells keeps what people's shell commands have printed: sanitized UTF-8, 16 MiB a command. It is safe for concurrent use.
type Shells interface {
	// Output returns the text of at most limit bytes (MinPage to MaxPage) of a branch's command from a byte offset on, cut on
	// characters, and the offset after it; last says that the command has ended and nothing follows. An offset beyond what is
	// there gives an empty text. It starts and stops nothing. The error is ErrUnknown or one of reading.
	Output(ctx context.Context, branch ident.ID, command string, offset int64, limit int) (text string, next int64, last bool, err error)
}

type readArgs struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset"`
	Limit  *int   `json:"limit"`
}

type readReply struct {
	Text string `json:"text"`
	Next *int64 `json:"next_offset"` // nil at the end
}

// Binding returns `output`. With nil shells there are no shell commands.
func Binding(shells Shells) binding.Binding {
	return binding.Binding{
		Name: "output", Module: "soma_out", Source: source, Rules: rules,
		Routes: []binding.Route{binding.Handle("output.read_shell", neuron.Idempotent, reader(shells))},
	}
}

func reader(shells Shells) func(context.Context, binding.Caller, readArgs) (any, error) {
	return func(ctx context.Context, c binding.Caller, args readArgs) (any, error) {
		limit := defaultPage
		if args.Limit != nil {
			limit = *args.Limit
		}
		if limit < MinPage || limit > MaxPage || args.Offset < 0 || args.ID == "" {
			return nil, &binding.Refusal{Code: "invalid", Text: fmt.Sprintf("a page of a shell command has an id, an offset from 0 on and a limit of %d to %d bytes", MinPage, MaxPage)}
		}
		unknown := &binding.Refusal{Code: "not_found", Text: fmt.Sprintf("this branch has no shell command %q", args.ID)}
		if shells == nil {
			return nil, unknown
		}
		text, next, last, err := shells.Output(ctx, c.Branch, args.ID, args.Offset, limit)
		switch {
		case errors.Is(err, ErrUnknown):
			return nil, unknown
		case err != nil:
			return nil, fmt.Errorf("cannot read the output of shell command %s: %w", args.ID, err)
		case last:
			return readReply{Text: text}, nil
		}
		return readReply{Text: text, Next: &next}, nil
	}
}
