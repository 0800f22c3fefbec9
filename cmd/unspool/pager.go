package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"

	"golang.org/x/sys/unix"
)

// defaultPager exits by itself if everything fits on the screen, passes colours through and leaves the text
// on the screen.
const defaultPager = "less -FRX"

// pager is the command that shows long text on a terminal, "" for none.
func pager() string {
	for _, name := range []string{"UNSPOOL_PAGER", "PAGER"} {
		if command, ok := os.LookupEnv(name); ok {
			if command == "cat" {
				return ""
			}
			return command
		}
	}
	if _, err := exec.LookPath("less"); err != nil {
		return ""
	}
	return defaultPager
}

// A pagerProcess is a shell that waits for text to show in a pager: when the text is there, this process may
// start nothing any more. Nil for no pager.
type pagerProcess struct {
	cmd    *exec.Cmd
	text   io.WriteCloser
	waited bool
}

// waitForText makes the shell run the pager when there is a line before the text, and none if there is not.
const waitForText = "IFS= read -r go || exit 0\n"

// startPager starts the user's pager for a terminal, nil if there is to be none.
func startPager(terminal *os.File) *pagerProcess {
	command := pager()
	if command == "" {
		return nil
	}
	cmd := exec.Command("sh", "-c", waitForText+command)
	cmd.Stdout, cmd.Stderr = terminal, os.Stderr
	cmd.Env = os.Environ()
	if os.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX") // for a $PAGER that is less without options
	}
	text, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return nil
	}
	return &pagerProcess{cmd: cmd, text: text}
}

// show writes text to the terminal, through the pager when it is longer than the screen.
func (p *pagerProcess) show(terminal *os.File, text []byte) error {
	if p == nil || bytes.Count(text, []byte("\n")) < rows(terminal) {
		_, err := terminal.Write(text)
		return err
	}
	// Ctrl-C is for the pager, which would otherwise be left alone with the terminal. A pager that is quit
	// early does not read all.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE)
	defer signal.Stop(interrupts)
	if _, err := io.WriteString(p.text, "go\n"); err == nil {
		_, _ = p.text.Write(text)
	}
	err := p.end()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.ExitCode() != notExecutable && exit.ExitCode() != notFound {
		return nil // a pager that was quit early is no failure
	}
	_, err = terminal.Write(text)
	return err
}

// end waits for the pager, or ends the shell without one.
func (p *pagerProcess) end() error {
	if p == nil || p.waited {
		return nil
	}
	p.waited = true
	p.text.Close()
	return p.cmd.Wait()
}

// Exit statuses of sh for commands that it cannot run.
const (
	notExecutable = 126
	notFound      = 127
)

// rows is the height of a terminal, 24 where it does not say.
func rows(f *os.File) int {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Row == 0 {
		return 24
	}
	return int(ws.Row)
}
