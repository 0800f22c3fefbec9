package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// Names of processes that confine themselves and report the result, as argv[0].
const (
	recordingTrial = "unspool (sandbox)"
	readingTrial   = "unspool (reading sandbox)"
)

// Any program that imports this package can be that process, test binaries included.
func init() {
	if len(os.Args) != 1 {
		return
	}
	var r *Report
	switch os.Args[0] {
	case recordingTrial:
		r = Confine()
	case readingTrial:
		r = ConfineReader(Reading{})
	default:
		return
	}
	if json.NewEncoder(os.Stdout).Encode(r) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Try reports what Confine does on this system, by running it in another process.
func Try() (*Report, error) { return try(recordingTrial) }

// TryReading does the same for ConfineReader.
func TryReading() (*Report, error) { return try(readingTrial) }

func try(name string) (*Report, error) {
	cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{name}}
	text, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("report of the confined process: %w", err)
	}
	return r, nil
}
