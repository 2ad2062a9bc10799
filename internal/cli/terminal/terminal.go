package terminal

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pasteOn  = "\x1b[?2004h" // pastes come with marks around them
	pasteOff = "\x1b[?2004l"
)

// Terminal is a terminal whose keys come one by one, Ctrl-C, Ctrl-D and Ctrl-Z among them, and are not shown by it. What is
// written to it ends its lines as ever.
type Terminal struct {
	in, out  *os.File
	marks    bool
	before   unix.Termios
	input    chan []byte
	resized  chan os.Signal
	stop     [2]int // a pipe: written to, the reader ends
	closing  chan struct{}
	finished chan struct{}
}

// Open takes a terminal over. With marks pastes are marked by escape sequences. The caller closes it.
func Open(in, out *os.File, marks bool) (*Terminal, error) {
	t := &Terminal{
		in: in, out: out, marks: marks,
		input: make(chan []byte), resized: make(chan os.Signal, 1), closing: make(chan struct{}), finished: make(chan struct{}),
	}
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("cannot read keys: %w", err)
	}
	t.before = *before
	if err := unix.Pipe2(t.stop[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("cannot read keys: %w", err)
	}
	if err := t.take(); err != nil {
		return nil, errors.Join(err, unix.Close(t.stop[0]), unix.Close(t.stop[1]))
	}
	signal.Notify(t.resized, syscall.SIGWINCH)
	go t.read()
	return t, nil
}

// Input gives what is typed, in pieces; it is closed when nothing more can come. One piece waits for its reader, the others in
// the terminal.
func (t *Terminal) Input() <-chan []byte { return t.input }

// Resized gives word when the size has changed.
func (t *Terminal) Resized() <-chan os.Signal { return t.resized }

// Size is the terminal's size in characters; 80 by 24 where it does not say.
func (t *Terminal) Size() (width, height int) {
	size, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// stopping is how long a stop may take to come. Where nobody could tell the program to go on, none comes.
const stopping = time.Second

// Suspend gives the terminal back and stops the program, with all of its job, until it is told to go on.
func (t *Terminal) Suspend() error {
	if err := t.give(); err != nil {
		return err
	}
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return errors.Join(fmt.Errorf("cannot suspend: %w", err), t.take())
	}
	select { // the signal may reach another thread first, so that this one still runs for a moment
	case <-goOn:
	case <-time.After(stopping):
	}
	return t.take()
}

// Close gives the terminal back, if it is still there. It waits for the end of the reader.
func (t *Terminal) Close() error {
	signal.Stop(t.resized)
	close(t.closing)
	_, err := unix.Write(t.stop[1], []byte{0})
	<-t.finished
	given := t.give()
	if errors.Is(given, unix.EIO) || errors.Is(given, unix.ENOTTY) {
		given = nil
	}
	return errors.Join(err, given, unix.Close(t.stop[0]), unix.Close(t.stop[1]))
}

func (t *Terminal) take() error {
	raw := t.before
	raw.Iflag &^= unix.ICRNL | unix.INLCR | unix.IGNCR | unix.IXON | unix.ISTRIP
	raw.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG | unix.IEXTEN
	raw.Oflag |= unix.OPOST | unix.ONLCR
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	return t.set(&raw, pasteOn)
}

func (t *Terminal) give() error { return t.set(&t.before, pasteOff) }

func (t *Terminal) set(mode *unix.Termios, paste string) error {
	if err := unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETSW, mode); err != nil {
		return fmt.Errorf("cannot set the terminal: %w", err)
	}
	if t.marks {
		if _, err := t.out.WriteString(paste); err != nil {
			return fmt.Errorf("cannot set the terminal: %w", err)
		}
	}
	return nil
}

// read hands over what is typed until the terminal is gone or Close is called.
func (t *Terminal) read() {
	defer close(t.finished)
	defer close(t.input)
	fds := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}, {Fd: int32(t.stop[0]), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || fds[1].Revents != 0 {
			return
		}
		b := make([]byte, 4096)
		n, err := unix.Read(int(t.in.Fd()), b)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		select {
		case t.input <- b[:n]:
		case <-t.closing:
			return
		}
	}
}
