package main

import (
	"path/filepath"
	"testing"

	"unspool/capture/profile"
	"unspool/testdata/programs"
)

// TestCodeInHugePages records programs that have moved their code to memory
// without a file, which huge pages take: the file still describes it.
func TestCodeInHugePages(t *testing.T) {
	t.Parallel()
	needRoot(t)
	path := buildCase(t, "huge.c")
	for _, how := range []string{"map", "move", "memfd", "file"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := programs.Program{Name: "huge"}
			proc := programs.StartCounted(t, path, counted, how)
			r := recordSteps(t, proc, 1, "--strict")
			r.whollyComplete(t)
			matchCounted(t, r, proc.Chain, p)
			r, chain := recordSteppedCommand(t, 1, []string{"--strict"}, path, how)
			matchCounted(t, r, chain, p)
		})
	}
}

// TestNodeInHugePages records node, which can move its code by itself. Its functions are named when it has.
func TestNodeInHugePages(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "node")
	node := startAsked(t, t.TempDir(), "node", atOnce, "--use-largepages=silent", "-e", `
		const fs = require("fs"), line = Buffer.alloc(1);
		fs.writeSync(1, "ready\n");
		while (fs.readSync(0, line, 0, 1) === 1) {
			const b = Buffer.alloc(1 << 20, "hugepages");
			require("zlib").deflateSync(b);
			fs.writeSync(1, "done\n");
		}`)
	r := recordAsked(t, node, "-m", "64M", "--stack-size", "32768")
	if n := r.stats.Unwind.Ended["no_image"]; n > 0 && testing.Short() {
		// A process has 50 ms of CPU time for looking for rules at first, which suffice without the
		// race detector.
		t.Skipf("the race detector is too slow for Node's rules: %d stacks end where they are not found", n)
	}
	r.whollyComplete(t)
	own := ownProfile(t, r.path)
	var samples, inNode uint64
	for _, s := range own.Samples {
		samples += s.Count
		for node := s.Node; node > 0; node = own.Nodes[node].Parent {
			f := own.Frames[own.Nodes[node].Frame]
			if f.Kind != profile.Kernel && filepath.Base(own.Images[f.Image].Name) == "node" {
				inNode += s.Count
				break
			}
		}
	}
	if inNode != samples || samples == 0 {
		t.Errorf("of %d samples %d lead through node", samples, inNode)
	}
}
