package live

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unspool/capture/output"
	"unspool/perfring"
)

// TestRecordingIsCompleteBeforeItsCommandEnds interrupts a recording: its file is there when COMMAND is asked to end,
// which can take longer than the process has that creates it.
func TestRecordingIsCompleteBeforeItsCommandEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "last")
	place, err := output.Find(path)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	clock, err := perfring.ParseEvents("cpu-clock:u")
	if err != nil {
		t.Fatal(err)
	}
	said, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	defer say.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		if line, _ := bufio.NewReader(said).ReadString('\n'); line == "ready\n" {
			cancel()
		}
	}()
	const there, missing = 3, 4
	out, err := Record(ctx, Options{
		Command: []string{"sh", "-c", `trap 'kill $!; set -- "$0".*; test -s "$1" && exit 3; exit 4' TERM
			sleep 600 >/dev/null & echo ready; wait`, path},
		CommandStdout: say, Events: clock, StackSize: 8192, RingPages: 8, MaxStack: 100,
		Rotation: &Rotation{Last: time.Hour, Place: place, Most: 1},
	})
	if err != nil || out.ExitStatus != there {
		t.Errorf("%v, status %d, %d if it was missing", err, out.ExitStatus, missing)
	}
}
