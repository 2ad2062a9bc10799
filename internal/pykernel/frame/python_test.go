package frame

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// decoder runs the decoder of the python kernels: it is given a stream as a length and so many bytes, and answers one line.
const decoder = `
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import soma_wire
while header := sys.stdin.buffer.read(4):
    data = sys.stdin.buffer.read(struct.unpack(">I", header)[0])
    reader, units, outcome = soma_wire.Decoder(), 0, None
    try:
        for value in reader.feed(data):
            units += 1
            soma_wire.shape("daemon", value)
            soma_wire.shape("kernel", value)
        outcome = reader.end()
    except soma_wire.BadUnit as e:
        outcome = e.outcome
    except BaseException as e:
        outcome = "raised " + repr(e)
    print(json.dumps({"units": units, "outcome": outcome}), flush=True)
`

// verdict is what a decoder makes of a stream.
type verdict struct {
	Units   int    `json:"units"`
	Outcome string `json:"outcome"`
}

// pythonDecoder is one process of it.
type pythonDecoder struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

func newPythonDecoder(t testing.TB) *pythonDecoder {
	t.Helper()
	sources, err := filepath.Abs("../python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-I", "-S", "-c", decoder, sources)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &pythonDecoder{in: in, out: bufio.NewReader(out)}
}

func (d *pythonDecoder) read(stream []byte) (v verdict, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(stream))), stream...)); err != nil {
		return v, err
	}
	line, err := d.out.ReadBytes('\n')
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(line, &v)
}

// P-210: both decoders make the same of every stream: the same units, and then the same end.
func FuzzBothDecoders(f *testing.F) {
	var cases []struct{ Input []byte }
	load(f, "vectors/units.json", &cases)
	for _, c := range cases {
		f.Add(c.Input)
	}
	f.Add([]byte("\x00\x00\x00\x0b{\"a\":1e999}"))
	f.Add([]byte("\x00\x00\x00\x12{\"\\ud800\":\"\\udc00\"}"))
	python := newPythonDecoder(f)
	f.Fuzz(func(t *testing.T, stream []byte) {
		var want verdict
		r := bytes.NewReader(stream)
		var err error
		for {
			var object []byte
			if object, err = Read(r); err != nil {
				break
			}
			want.Units++
			if _, err := Parse(object); err != nil && !errors.Is(err, ErrMalformed) {
				t.Fatalf("%q: %v", object, err)
			}
		}
		want.Outcome = class(err)
		got, err := python.read(stream)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%q: python %+v, go %+v", stream, got, want)
		}
	})
}
