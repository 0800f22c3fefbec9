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

// TestNodeInHugePages records node, which can move its code by itself.
func TestNodeInHugePages(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "node")
	const script = `const b = Buffer.alloc(1 << 20, "hugepages"), end = Date.now() + 1500;
		while (Date.now() < end || process.cpuUsage().user < 1e6) require("zlib").deflateSync(b)`
	r := record(t, "-F", "1999", "--", "node", "--use-largepages=silent", "-e", script)
	if n := r.stats.Unwind.Ended["no_image"]; n > 0 && testing.Short() {
		// A process has 50 ms of CPU time for looking for rules at first, which suffice without the
		// race detector.
		t.Skipf("the race detector is too slow for Node's rules: %d stacks end where they are not found", n)
	}
	r.whole(t)
	own := ownProfile(t, r.path)
	var samples, inNode uint64
	for _, s := range own.Samples {
		f := own.Frames[own.Nodes[s.Node].Frame]
		if f.Kind == profile.Kernel {
			continue
		}
		samples += s.Count
		if filepath.Base(own.Images[f.Image].Name) == "node" {
			inNode += s.Count
		}
	}
	if inNode*2 < samples {
		t.Errorf("of %d samples %d are in node", samples, inNode)
	}
}
