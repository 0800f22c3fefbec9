package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// trialName is argv[0] of a process that confines itself and reports the result.
const trialName = "unspool (sandbox)"

// Any program that imports this package can be that process, test binaries included.
func init() {
	if len(os.Args) == 1 && os.Args[0] == trialName {
		if json.NewEncoder(os.Stdout).Encode(Confine()) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// Try reports what Confine does on this system, by running it in another process.
func Try() (*Report, error) {
	cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{trialName}}
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
