package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"soma/client"
	"soma/wire"
)

// A program that lets an agent work in a folder and prints what it answers, also when the daemon is killed meanwhile.
func Example() {
	ctx := context.Background()
	home := filepath.Join(os.Getenv("HOME"), ".soma")
	c, err := client.New(client.Options{
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(home, "soma.sock"))
		},
		Token: func() (string, error) {
			text, err := os.ReadFile(filepath.Join(home, "token"))
			return strings.TrimSpace(string(text)), err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	// Ids are the program's own: a request that is made again under its id happens once.
	const session, input = "report-2026-11", "first"
	if _, err := c.OpenSession(ctx, session, wire.OpenSession{Workspace: "/data", Model: "openai:MODEL"}); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.Admit(ctx, session, input, wire.Input{Text: "how many rows has data.csv?"}); err != nil {
		fmt.Println(err)
		return
	}

	for at := (wire.Cursor{}); ; {
		at, err = c.Follow(ctx, session, at, func(f client.Frame) error {
			switch {
			case f.Delta != nil:
				fmt.Print(f.Delta.Text)
			case f.Event != nil && f.Event.Kind == wire.ProcessExited:
				return client.ErrEnough
			}
			return nil
		})
		if !errors.Is(err, client.ErrLost) {
			break
		}
		// Most commands start a daemon where none answers; following goes on from the cursor.
		if err = exec.CommandContext(ctx, "soma", "ps").Run(); err != nil {
			break
		}
	}
	if err != nil {
		fmt.Println(err)
	}
}
