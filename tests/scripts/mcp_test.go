package scripts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpServer runs `soma mcp` in a home and folder of its own, and ends both with the test.
func mcpServer(t *testing.T, args ...string) (session *mcp.ClientSession, env []string, folder string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcp") // short: a socket lies in it
	if err != nil {
		t.Fatal(err)
	}
	home, folder := filepath.Join(dir, "home"), filepath.Join(dir, "ws")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	env = append(os.Environ(), "SOMA_HOME="+home, owner+"="+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() {
		stop := exec.Command("soma", "stop", "--kernels")
		stop.Env = env
		_ = stop.Run() // there may be none
		_ = os.RemoveAll(dir)
	})
	command := exec.CommandContext(t.Context(), "soma", append([]string{"mcp"}, args...)...)
	command.Env, command.Dir = env, folder
	session, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session, env, folder
}

// answer is what a result says: its first line, and the output after it.
type answer struct {
	Status string `json:"status"`
	Value  string `json:"value"`
	Note   string `json:"note"`
	output string
}

func execute(t *testing.T, s *mcp.ClientSession, tool string, arguments map[string]any) (answer, error) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return answer{}, err
	}
	line, output, _ := strings.Cut(r.Content[0].(*mcp.TextContent).Text, "\n")
	a := answer{output: output}
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		return a, fmt.Errorf("%q: %w", line, err)
	}
	return a, nil
}

// Calls at once, through the deaths of the daemon: each is answered with its own result, and its code has run once.
func TestMCPCallsAtOnce(t *testing.T) {
	t.Parallel()
	s, env, folder := mcpServer(t)
	if _, err := execute(t, s, "python_execute", map[string]any{"code": "import asyncio\nruns = []"}); err != nil {
		t.Fatal(err)
	}
	const calls = 12
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			code := fmt.Sprintf("runs.append(%d)\nopen(%q, 'a').write('x')\nawait asyncio.sleep(1)\nprint('call', %d)\n%d", i, filepath.Join(folder, "ran"), i, i*i)
			a, err := execute(t, s, "python_execute", map[string]any{"code": code})
			if want := strconv.Itoa(i * i); err != nil || a.Status != "ok" || a.Value != want || a.output != fmt.Sprintf("call %d", i) {
				t.Errorf("call %d: %+v, %v", i, a, err)
			}
		})
	}
	for range 2 {
		status := exec.CommandContext(t.Context(), "soma", "status", "-o", "json")
		status.Env = env
		out, err := status.Output()
		var daemon struct{ PID int }
		if err == nil {
			err = json.Unmarshal(out, &daemon)
		}
		if err == nil && daemon.PID > 0 {
			_ = syscall.Kill(daemon.PID, syscall.SIGKILL)
		}
	}
	all.Wait()
	a, err := execute(t, s, "python_execute", map[string]any{"code": "sorted(runs) == list(range(12)), len(runs)"})
	if err != nil || a.Value != "(True, 12)" {
		t.Errorf("%+v, %v", a, err)
	}
	if b, err := os.ReadFile(filepath.Join(folder, "ran")); err != nil || len(b) != calls {
		t.Errorf("the code of %d calls ran %d times (%v)", calls, len(b), err)
	}
}

// What the client gives that is wrong is refused as a result that a model can read, and harms nothing.
func TestMCPBadInput(t *testing.T) {
	t.Parallel()
	s, _, _ := mcpServer(t)
	for _, c := range []struct {
		tool      string
		arguments map[string]any
	}{
		{"python_execute", map[string]any{}},
		{"python_execute", map[string]any{"code": " \n"}},
		{"python_execute", map[string]any{"code": "1", "timeout": 3601}},
		{"python_execute", map[string]any{"code": strings.Repeat("#", 5<<20)}},
		{"python_execute", map[string]any{"code": "1", "more": 1}},
		{"python_result", map[string]any{"cell": "../../x"}},
		{"python_result", map[string]any{"cell": "x", "wait": 601}},
		{"python_output", map[string]any{"id": "x", "limit": 3}},
		{"python_output", map[string]any{"id": "x", "offset": -1}},
		{"python_output", map[string]any{"id": "../x"}},
		{"python_job_stop", map[string]any{"job": "../x"}},
		{"python_interrupt", map[string]any{"cell": ""}},
	} {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.arguments})
		if err == nil && !r.IsError {
			t.Errorf("%s %.60v was taken: %+v", c.tool, c.arguments, r.Content[0])
		} else if err == nil && strings.Contains(r.Content[0].(*mcp.TextContent).Text, "openapi") {
			t.Errorf("%s %.60v reached a path that is none: %+v", c.tool, c.arguments, r.Content[0])
		}
	}
	if a, err := execute(t, s, "python_execute", map[string]any{"code": "6*7"}); err != nil || a.Value != "42" {
		t.Errorf("%+v, %v", a, err)
	}
}

// Lines that are no messages are answered, and the server goes on.
func TestMCPGarbage(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "mcp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	command := exec.CommandContext(t.Context(), "soma", "mcp")
	command.Dir, command.Env = dir, append(os.Environ(), "SOMA_HOME="+filepath.Join(dir, "home"), owner+"="+strconv.Itoa(os.Getpid()))
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	answers := json.NewDecoder(out)
	for _, c := range []struct {
		line string
		code int // 0: a result
	}{
		{"garbage", -32700},
		{"{\"jsonrpc\":\"2.0\",", -32700},
		{"{\"x\":1}", -32600},
		{"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", -32600},
		{"\n\r\n" + strings.Repeat("x", 17<<20), -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}," +
			"\"clientInfo\":{\"name\":\"x\",\"version\":\"1\"}}}", 0},
	} {
		if _, err := in.Write([]byte(c.line + "\r\n")); err != nil {
			t.Fatal(err)
		}
		var answer struct {
			ID    any
			Error struct{ Code int }
		}
		if err := answers.Decode(&answer); err != nil {
			t.Fatalf("%.40q: %v", c.line, err)
		}
		if answer.Error.Code != c.code || (answer.ID == nil) != (c.code != 0) {
			t.Errorf("%.40q is answered %+v", c.line, answer)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("at the end of the input: %v", err)
	}
}
