package main

import (
	le "encoding/binary"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"unspool/perfring"
)

// TestCheck checks a recording of perf with raw stacks, for which the result says how callers were found, and
// its conversion. In a recording where every caller is moved by one byte the callers are found to be wrong,
// and --fail-above fails.
func TestCheck(t *testing.T) {
	t.Parallel()
	raw := placed(t, "raw")
	unwound := convert(t, raw).path
	var result struct {
		Samples uint64
		Walks   struct{ User, Complete uint64 }
		Edges   struct{ Edges, Wrong uint64 }
		Sources map[string]struct{ Edges, Wrong uint64 }
		Worst   []struct{ Caller, Why string }
	}
	run := func(status int, args ...string) ended {
		t.Helper()
		e := unspool(t, t.TempDir(), append([]string{"check"}, args...)...)
		if e.status != status {
			t.Fatalf("%q: %+v", args, e)
		}
		return e
	}
	read := func(e ended) {
		t.Helper()
		result.Sources, result.Worst = nil, nil
		if err := json.Unmarshal([]byte(e.stdout), &result); err != nil {
			t.Fatal(err)
		}
	}
	read(run(0, "--json", "--fail-above", "0", raw))
	if n := result.Sources["cfi"].Edges; n < 400 || n != result.Edges.Edges || result.Edges.Wrong > 0 ||
		result.Walks.Complete != result.Walks.User || result.Walks.User != result.Samples {
		t.Errorf("raw: %+v", result)
	}
	edges := result.Edges.Edges
	read(run(0, "--json", "--fail-above", "cfi=0.01", unwound))
	if n := result.Sources["unknown"].Edges; n != edges || n != result.Edges.Edges || result.Walks.User > 0 {
		t.Errorf("unwound: %+v, raw had %d edges", result, edges)
	}
	text := run(0, unwound).stdout
	if !strings.Contains(text, "unknown") || strings.Contains(text, "wrong, most") {
		t.Error(text)
	}

	lie := unwound + ".lie"
	shiftCallers(t, unwound, lie)
	read(run(statusAbove, "--json", "--fail-above", "50", lie))
	if result.Edges.Wrong != edges || len(result.Worst) == 0 ||
		!strings.Contains(result.Worst[0].Why, "follows no call") {
		t.Errorf("shifted: %+v", result)
	}
	e := run(statusAbove, "--fail-above", "unknown=0.1", lie)
	if !strings.HasPrefix(e.stderr, "unspool: unknown: ") || len(e.lines()) != 1 ||
		!strings.Contains(e.stdout, "the return address follows no call") {
		t.Errorf("%+v", e)
	}
	run(0, "--fail-above", "cfi=0", lie)
}

// shiftCallers writes a recording with callchains in which every caller is one byte further on.
func shiftCallers(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	word := le.LittleEndian
	data := content[word.Uint64(content[40:]):][:word.Uint64(content[48:])] // struct perf_file_header
	for len(data) > 0 {
		rec := perfring.Record(data[:word.Uint16(data[6:])])
		data = data[len(rec):]
		if rec.Type() != perfring.RecordSample {
			continue
		}
		user := false // the callchain comes last
		for at := 8; at < len(rec); at += 8 {
			if user && at+8 < len(rec) {
				word.PutUint64(rec[at+8:], word.Uint64(rec[at+8:])+1)
			}
			user = user || word.Uint64(rec[at:]) == perfring.ContextUser
		}
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCheckOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"a", "b"}, `unexpected argument "b": check reads one recording`},
		{[]string{"--fail-above", "cfi"}, "--fail-above cfi: must be a percentage"},
		{[]string{"--fail-above", "all=1"}, "unknown source: must be one of cfi,"},
		{[]string{"--max-stack", strconv.Itoa(largestMaxStack + 1)}, "must be 1 to"},
	} {
		e := unspool(t, t.TempDir(), append([]string{"check"}, c.args...)...)
		e.fails(t, statusFailure, c.says)
	}
	unspool(t, t.TempDir(), "check", "missing.data").fails(t, statusFailure, "missing.data")
}
