package main

import (
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var servedAt = regexp.MustCompile(`^(http://\S+) shows`)

// TestReportServes looks at the pages of report --http, and ends them as a user does.
func TestReportServes(t *testing.T) {
	data := halvesRecording(t)
	for _, args := range [][]string{
		{"report", "--http", data},
		{"report", "--http=127.0.0.1:0", data},
		{"report", "--http", "127.0.0.1:0", data},
	} {
		t.Run(strings.Join(args[:len(args)-1], " "), func(t *testing.T) {
			out, in := io.Pipe()
			r := start(t, t.TempDir(), func(c *exec.Cmd) { c.Stdout = in }, args...)
			url := make(chan string, 1)
			go func() {
				line := make([]byte, 256)
				n, _ := out.Read(line)
				if m := servedAt.FindSubmatch(line[:n]); m != nil {
					url <- string(m[1])
				}
				close(url)
			}()
			at := ""
			select {
			case at = <-url:
			case <-time.After(30 * time.Second):
			}
			if at == "" {
				t.Fatal("no address was told")
			}
			answer, err := http.Get(at + "/ui/top")
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			page, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(page), "halves_mix") {
				t.Errorf("%v, %s, %d bytes", err, answer.Status, len(page))
			}
			r.Process.Signal(syscall.SIGINT)
			if e := r.finish(t, 10*time.Second); e.status != 0 {
				t.Errorf("status %d: %s", e.status, e.stderr)
			}
		})
	}
}
