package main

import (
	"bytes"
	"errors"
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

// page writes text to a terminal, through the pager when it is longer than the screen.
func page(terminal *os.File, text []byte, command string) error {
	if command == "" || bytes.Count(text, []byte("\n")) < rows(terminal) {
		_, err := terminal.Write(text)
		return err
	}
	// Ctrl-C is for the pager, which would otherwise be left alone with the terminal. A signal that is caught
	// here is not ignored in the pager.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, unix.SIGINT, unix.SIGQUIT)
	defer signal.Stop(interrupts)
	cmd := exec.Command("sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), terminal, os.Stderr
	cmd.Env = os.Environ()
	if os.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX") // for a $PAGER that is less without options
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.ExitCode() != notExecutable && exit.ExitCode() != notFound {
		return nil // a pager that was quit early is no failure
	}
	_, err = terminal.Write(text)
	return err
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
