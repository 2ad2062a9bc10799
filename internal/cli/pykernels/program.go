package pykernels

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"soma/client"
)

// Program is what the commands need of the program that they are a part of.
type Program interface {
	// Open makes the client; it starts and asks nothing. Commands need it for completions only.
	Open() error
	// Ensure starts a daemon if none answers.
	Ensure(ctx context.Context) error
	// Keep makes a request that may be repeated until a daemon has answered it.
	Keep(ctx context.Context, request func() error) error
	Client() *client.Client
	// JSON reports whether JSON was asked for; PrintJSON writes a value as one line of it.
	JSON() bool
	PrintJSON(v any) error
	Output() io.Writer
	// Workspace is the folder one stands in, as sessions name it.
	Workspace() (string, error)
	// Terminal reports whether the output is a terminal.
	Terminal() bool
	// Say writes one line to the person, beside the output.
	Say(format string, args ...any)
	// Ask puts a question to the person; ok is false where nobody can be asked.
	Ask(question string) (yes, ok bool)
}

// Commands returns the commands of this room.
func Commands(p Program) []*cobra.Command {
	kernel := &cobra.Command{
		Use:   "kernel",
		Short: "show or restart a python kernel",
		Long: "kernel shows a python kernel with the jobs that run in it, or restarts it. WHAT is the pid of a process, or the id of a kernel,\n" +
			"session or branch, or the beginning of one that fits nothing else; . is the kernel of soma py in this folder.",
	}
	kernel.AddCommand(cmdShow(p), cmdRestart(p))
	job := &cobra.Command{
		Use:   "job",
		Short: "show what a job has written, or stop it",
		Long: "job shows the output of a job of a python kernel, or stops it. WHAT is the pid of a process, or the id of a kernel, session or\n" +
			"branch, or the beginning of one that fits nothing else; . is the kernel of soma py in this folder. soma jobs has the ids of jobs.",
	}
	job.AddCommand(cmdJobOutput(p), cmdJobStop(p))
	return []*cobra.Command{cmdKernels(p), kernel, cmdJobs(p), job}
}

// slowly is after how long a person hears what is waited for.
const slowly = 2 * time.Second

// patiently runs a request that may take long, and says so then.
func patiently(p Program, what string, request func() error) error {
	told := make(chan struct{})
	t := time.AfterFunc(slowly, func() { defer close(told); p.Say("%s", what) })
	err := request()
	if !t.Stop() {
		<-told
	}
	return err
}

// completeWait bounds what a person waits for a completion.
const completeWait = time.Second
