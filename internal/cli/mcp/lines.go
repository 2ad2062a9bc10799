package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxLine bounds one message of a client in bytes: code of a cell has 1 MiB at most, and escaping makes it longer.
const maxLine = 16 << 20

// Codes of JSON-RPC 2.0.
const (
	parseError     = -32700
	invalidRequest = -32600
)

// lines hands on the lines that are messages. What is none is answered, as JSON-RPC wants it, where the SDK would end the
// server and with it the client's hold on all that runs.
type lines struct {
	in   *bufio.Reader
	out  io.Writer
	rest []byte // of the line that is being read
}

func newLines(in io.Reader, out io.Writer) *lines {
	return &lines{in: bufio.NewReaderSize(in, 64<<10), out: out}
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, whole, err := l.line()
		if len(bytes.TrimSpace(line)) > 0 {
			if refusal := judge(line, whole); refusal != nil {
				if err := l.refuse(refusal); err != nil {
					return 0, err
				}
			} else {
				l.rest = append(bytes.TrimRight(line, "\r\n"), '\n')
				break
			}
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Close does nothing: the input is the program's.
func (l *lines) Close() error { return nil }

// line reads to the end of a line; of one that is over the bound the rest is passed over, and whole is false.
func (l *lines) line() (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := l.in.ReadSlice('\n')
		if whole = whole && len(line)+len(part) <= maxLine; whole {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, whole, err
		}
	}
}

// fault is the error of an answer.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// judge says why a line is no message; nil for one that is.
func judge(line []byte, whole bool) *fault {
	switch {
	case !whole:
		return &fault{invalidRequest, "the message is over 16 MiB"}
	case !json.Valid(line):
		return &fault{parseError, "the line is no JSON"}
	case bytes.TrimSpace(line)[0] == '[':
		return &fault{invalidRequest, "messages come one by one, not in a batch"}
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return &fault{invalidRequest, "the line is no JSON-RPC message: " + err.Error()}
	}
	return nil
}

func (l *lines) refuse(f *fault) error {
	answer, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		ID      any    `json:"id"`
		Error   *fault `json:"error"`
	}{"2.0", nil, f})
	if err != nil {
		return err
	}
	_, err = l.out.Write(append(answer, '\n'))
	return err
}

// shared is an output of several writers, each of whose messages is one write.
type shared struct {
	mu sync.Mutex
	io.WriteCloser
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.WriteCloser.Write(p)
}
