package shell

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"soma/ident"
)

// passes bounds the looks for processes of a command: each may have started others in the meantime.
const passes = 5

// killMarked kills every OS process that a command has left, wherever its group went.
func killMarked(id ident.ID) {
	mark := []byte(Mark + "=" + id.String())
	for range passes {
		entries, _ := os.ReadDir("/proc")
		found := false
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil && marked(pid, mark) {
				found = kill(pid, mark) || found
			}
		}
		if !found {
			return
		}
	}
}

func marked(pid int, mark []byte) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, mark) {
			return true
		}
	}
	return false
}

// kill kills a process that is still the one with the mark once a handle on it is there.
func kill(pid int, mark []byte) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return marked(pid, mark) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
