package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// corpus is where targets look for recordings and the like, relative to the top of the module.
const corpus = "dist/inputs"

// collect makes recordings that are small, by perf and node, where these are.
func collect(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	const perf = "perf record -q -F 999 -e cpu-clock "
	const load = " -- perl -e '1 for 1..300000'"
	for name, command := range map[string]string{
		"dwarf.data": perf + "--call-graph dwarf,1024 -o dwarf.data" + load,
		"zstd.data":  perf + "-z --call-graph dwarf,1024 -o zstd.data" + load,
		"fp.pipe":    perf + "-g -o -" + load + " >fp.pipe",
		"zstd.pipe":  perf + "-z --call-graph dwarf,1024 -o -" + load + " >zstd.pipe",
		// Pieces of long files: one ends in the middle of a record.
		"jit.dump": "node --perf-prof -e 1; head -c 8000 jit-*.dump >jit.dump; rm -f jit-*.dump *.log",
		"perf-node.map": "node --perf-basic-prof -e 'console.log(process.pid)' >pid; " +
			"head -n 200 /tmp/perf-$(cat pid).map >perf-node.map; rm -f /tmp/perf-$(cat pid).map pid *.log",
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			continue
		}
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "without %s: %v\n%s", name, err, out)
		}
	}
	return nil
}
