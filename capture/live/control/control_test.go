package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// fifos makes two FIFOs and opens them as others do.
func fifos(t *testing.T) (spec string, in, acks *os.File) {
	t.Helper()
	in, acks = programs.FIFO(t), programs.FIFO(t)
	return "fifo:" + in.Name() + "," + acks.Name(), in, acks
}

func open(t *testing.T, spec string) (*Control, chan bool) {
	t.Helper()
	c, err := Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	news := make(chan bool, 1000)
	c.Start(func() { news <- true })
	return c, news
}

func TestCommands(t *testing.T) {
	spec, in, acks := fifos(t)
	c, news := open(t, spec)
	if command, ok := c.Next(); ok {
		t.Errorf("%q before anything was written", command)
	}
	long := strings.Repeat("x", 10*longestLine)
	if _, err := in.WriteString("enable\n\n  ping \r\n" + long + "\nstop now\nst"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Command{Enable, Ping, Command(long[:longestLine]), "stop now"} {
		<-news
		if command, ok := c.Next(); !ok || command != want {
			t.Errorf("%q, %v, want %q", command, ok, want)
		}
	}
	if _, err := in.WriteString("op\n"); err != nil {
		t.Fatal(err)
	}
	<-news
	if command, _ := c.Next(); command != Stop {
		t.Errorf("%q, want stop, which was written in two parts", command)
	}
	if err := c.Acknowledge(); err != nil {
		t.Fatal(err)
	}
	var text [16]byte
	if n, err := acks.Read(text[:]); err != nil || string(text[:n]) != "ack\n" {
		t.Errorf("%q, %v", text[:n], err)
	}
}

// TestNobodyReads checks that nothing waits for a reader of acknowledgements, or of commands.
func TestNobodyReads(t *testing.T) {
	spec, in, _ := fifos(t)
	c, _ := open(t, spec)
	for range 50000 { // more than a FIFO holds
		if err := c.Acknowledge(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.WriteString(strings.Repeat("ping\n", 100)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	c2, err := Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	c2.Start(func() {})
	go func() {
		c2.Close()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("Close hangs")
	}
}

func TestBadControl(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for spec, says := range map[string]string{
		"":                          "must be fifo:CTL or fifo:CTL,ACK",
		"fifo:":                     "must be fifo:CTL",
		"fd:3":                      "must be fifo:CTL",
		"fifo:a,":                   "must be fifo:CTL",
		"fifo:" + file:              "is not a FIFO",
		"fifo:" + dir:               "directory",
		"fifo:" + dir + "/none":     "no such file",
		"fifo:/dev/null,/dev/null":  "is not a FIFO",
		"fifo:" + file + "," + file: "is not a FIFO",
	} {
		c, err := Open(spec)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", spec, err, says)
		}
	}
}
