package instance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"soma/internal/config"
)

// bareAnswer is how many bytes the bare server answers with: as many as the state of a process has.
const bareAnswer = 340

// ServeBare is the bare server for turns_socket_64: net/http on a Unix socket, with a body read and an answer written, and no
// check, turn or commit. It serves until its standard input ends.
func ServeBare(socket string) error {
	l, err := config.ListenSocket(socket)
	if err != nil {
		return err
	}
	answer := []byte(strings.Repeat("x", bareAnswer))
	s := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Close()
	<-ended
	return nil
}

// bareServer is a ServeBare in an OS process of its own, as the daemon is.
type bareServer struct {
	socket string
	cmd    *exec.Cmd
	input  io.Closer
}

func startBare(ctx context.Context, socket string) (*bareServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-bare", socket)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &bareServer{socket: socket, cmd: cmd, input: input}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		conn, err := config.DialSocket(ctx, socket)
		if err == nil {
			return b, conn.Close()
		}
		if time.Now().After(until) {
			b.stop()
			return nil, fmt.Errorf("the bare server does not answer: %w", err)
		}
	}
}

func (b *bareServer) stop() {
	_ = b.input.Close()
	_ = b.cmd.Wait()
}
