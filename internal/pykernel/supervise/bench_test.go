package supervise_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/config"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
	"soma/internal/pykernel/frame"
	"soma/internal/pykernel/link"
	"soma/internal/pykernel/pykerneltest"
)

// median reports the median of the benchmark's rounds, which outliers of a shared machine leave alone.
func median(b *testing.B, rounds []time.Duration) {
	slices.Sort(rounds)
	b.ReportMetric(float64(rounds[len(rounds)/2].Nanoseconds())/1e3, "µs-p50")
	b.ReportMetric(float64(rounds[len(rounds)/20].Nanoseconds())/1e3, "µs-p5")
	b.ReportMetric(float64(rounds[len(rounds)*95/100].Nanoseconds())/1e3, "µs-p95")
}

// P-212: from the commit of a kernel's first execute frame to its committed result.
func BenchmarkColdStart(b *testing.B) {
	h := pykerneltest.New(b, nil)
	var rounds []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		_, cell := h.Open(fmt.Sprint("owner", i), "1+1")
		h.Outcome(cell)
		rounds = append(rounds, time.Since(began))
	}
	median(b, rounds)
}

// P-212: `1+1` from the commit of its frame to its committed result.
func BenchmarkCellCommitted(b *testing.B) {
	h := pykerneltest.New(b, nil)
	kernel, cell := h.Open("a", "1+1")
	h.Outcome(cell)
	var rounds []time.Duration
	for b.Loop() {
		began := time.Now()
		h.Outcome(h.Run("a", kernel, "1+1", time.Minute))
		rounds = append(rounds, time.Since(began))
	}
	median(b, rounds)
}

// bareKernel is the least that runs code from frames: one reader thread, one loop, no session, no capture.
const bareKernel = `import asyncio, json, socket, sys, threading
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
loop = asyncio.new_event_loop()
def run(m):
    b = json.dumps({"done": repr(eval(m["code"]))}).encode()
    s.sendall(len(b).to_bytes(4, "big") + b)
def reader():
    f = s.makefile("rb")
    while h := f.read(4):
        loop.call_soon_threadsafe(run, json.loads(f.read(int.from_bytes(h, "big"))))
    loop.call_soon_threadsafe(loop.stop)
threading.Thread(target=reader, daemon=True).start()
loop.run_forever()
`

// The bare framed round trip: the denominator of P-212.
func BenchmarkBareRoundTrip(b *testing.B) {
	dir := b.TempDir()
	script, socket := filepath.Join(dir, "bare.py"), filepath.Join(dir, "s")
	if err := os.WriteFile(script, []byte(bareKernel), 0o600); err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command(pykerneltest.Python, "-I", "-S", script, socket)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	r := bufio.NewReader(conn)
	var rounds []time.Duration
	for b.Loop() {
		began := time.Now()
		unit, err := frame.Append(nil, []byte(`{"code":"1+1"}`))
		if err == nil {
			_, err = conn.Write(unit)
		}
		if err == nil {
			_, err = frame.Read(r)
		}
		if err != nil {
			b.Fatal(err)
		}
		rounds = append(rounds, time.Since(began))
	}
	conn.Close()
	_ = cmd.Wait()
	median(b, rounds)
}

// side takes the outcomes of the benchmark's link.
type side struct {
	link *link.Link
	done chan string
}

func (side) Waiting() error                           { return nil }
func (side) Hello(context.Context, frame.Hello) error { return nil }
func (side) Acked([]uint64)                           {}
func (side) Evidence(uint64)                          {}
func (side) Output(string, int64, string)             {}
func (side) Pong(uint64)                              {}
func (s side) Frame(seq uint64, f *frame.Frame) {
	if f.Done != nil && f.Done.Value != nil {
		s.done <- *f.Done.Value
	}
	s.link.Settle(seq)
}

// P-212: `1+1` over the link, without commits: at most twice the bare round trip.
func BenchmarkLinkRoundTrip(b *testing.B) {
	dir := b.TempDir()
	tree, err := bundle.Unpack(filepath.Join(dir, "bundles"))
	if err != nil {
		b.Fatal(err)
	}
	run := filepath.Join(dir, "k1")
	if err := os.Mkdir(run, 0o700); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(pykerneltest.Python, "-I", "-S", tree.LauncherPath(), "--run", run, "--bundle", tree.Digest)
	cmd.Env, cmd.Dir = pykerneltest.Env(), dir
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	fmt.Fprintln(in, "00ff")
	_, _ = out.Read(make([]byte, 1)) // its end: the socket listens
	conn, err := config.DialSocket(b.Context(), filepath.Join(run, "kernel.sock"))
	if err != nil {
		b.Fatal(err)
	}
	l := link.New()
	s := side{l, make(chan string, 1)}
	ctx, cancel := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() {
		served <- l.Serve(ctx, conn, frame.Attach{Kernel: "k1", Token: "00ff", Grace: 60, Lease: 1, Protocol: 1}, s)
	}()
	var rounds []time.Duration
	for seq := uint64(1); b.Loop(); seq++ {
		began := time.Now()
		cell := ident.New(began).String()
		f, err := pykernel.NewFrame("k1", cell, pykernel.Execute{Type: pykernel.FrameExecute, Cell: cell, Code: "1+1", TimeoutMS: 1000}, began)
		if err != nil {
			b.Fatal(err)
		}
		l.Append(seq, f.Body, false)
		if v := <-s.done; v != "2" {
			b.Fatalf("value %q", v)
		}
		rounds = append(rounds, time.Since(began))
	}
	cancel()
	<-served
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	median(b, rounds)
}
