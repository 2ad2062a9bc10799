package cluster

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// peerSecret is what the daemons of the database show each other.
func (c *cluster) peerSecret() string {
	c.t.Helper()
	conn, err := pgconn.Connect(c.t.Context(), c.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(c.t.Context())
	r := conn.ExecParams(c.t.Context(), "select value from meta where name = 'peers'", nil, nil, nil, nil).Read()
	if r.Err != nil || len(r.Rows) != 1 || len(r.Rows[0][0]) != 64 {
		c.t.Fatalf("the secret: %v, %d rows", r.Err, len(r.Rows))
	}
	return string(r.Rows[0][0])
}

// secrets looks for what must not show: the password, the peers' secret and the homes' tokens, in logs, arguments, the
// environment of python kernels and in what commands print. I-54
func secrets(t *testing.T, nodes ...*node) {
	t.Helper()
	hidden := map[string]string{password: "the password", nodes[0].c.peerSecret(): "the peers' secret"}
	for _, n := range nodes {
		token, err := n.home.ReadToken()
		if err != nil {
			t.Fatal(err)
		}
		hidden[token.Reveal()] = "a token"
	}
	look := func(where, text string) {
		t.Helper()
		for secret, name := range hidden {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %s", where, name)
			}
		}
	}
	for _, n := range nodes {
		look("the log", n.log.String())
		for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"config"}, {"config", "-o", "json"}, {"doctor"}, {"ps", "-a", "-o", "json"}} {
			out, _ := n.soma(args...)
			look("soma "+strings.Join(args, " "), out)
		}
		metrics, err := n.Metrics(t.Context())
		if err != nil {
			t.Error(err)
		}
		look("the metrics", string(metrics))
		for _, pid := range processesOf(t, n.home.Dir()) {
			at := filepath.Join("/proc", strconv.Itoa(pid))
			args, _ := os.ReadFile(filepath.Join(at, "cmdline"))
			look("an argument of pid "+strconv.Itoa(pid), string(args))
			if !strings.Contains(string(args), n.home.Run()) { // not a python kernel
				continue
			}
			vars, _ := os.ReadFile(filepath.Join(at, "environ"))
			look("the environment of a python kernel", string(vars))
		}
	}
}
