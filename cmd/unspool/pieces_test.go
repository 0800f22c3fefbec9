package main

import (
	encoding "encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/testdata/programs"
)

// TestReportListsFiles asks for recordings that were written as several files. A date in a name is by the local clock,
// whatever the zone.
func TestReportListsFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	zoned := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(zoned, zoneFile("+0545", 5*3600+45*60), 0o644); err != nil {
		t.Fatal(err)
	}
	unspool := func(t *testing.T, dir string, args ...string) ended {
		t.Helper()
		r := start(t, dir, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "TZ="+zoned) }, args...)
		return r.finish(t, time.Minute)
	}
	for _, how := range [][]string{{"--last", "1h"}, {"--switch-output"}, {"--switch-output", "--no-sandbox"}} {
		args := slices.Concat([]string{"record", "-q", "-o", "x.data"}, how, programs.Faults(), []string{"--", "true"})
		if e := unspool(t, dir, args...); e.status != 0 {
			t.Fatalf("%+v", e)
		}
	}
	names := perfdata.PieceNames(filepath.Join(dir, "x.data"))
	if len(names) != 3 {
		t.Fatalf("%q", names)
	}
	// One that was cut off, one that is none, and two that are others'.
	content := mustRead(t, names[0])
	for name, text := range map[string][]byte{
		"x.data.2020010203040506": content[:len(content)*3/4], "x.data.2020010203040507": []byte("text"),
		"x.data.old":              content,
		"y.data.2020010203040506": content,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := unspool(t, dir, "report", "x.data")
	zone := `\+05:45`
	want := `^x\.data\.2020010203040506  from 2020-01-02 03:04:05 ` + zone + ` on: not complete, .*\n` +
		`x\.data\.2020010203040507  .*not a perf.data file\n` +
		strings.Repeat(`x\.data\.20\d{14}  20[-\d]+ [:\d]+ (to ([-\d]+ )?[:\d]+ )?`+zone+`, \d+ ms\n`, 3) + `$`
	if e.status != statusFailure || !regexp.MustCompile(want).MatchString(e.stdout) ||
		!strings.Contains(e.stderr, "x.data is not there, as it was written as 5 files: 'unspool report FILE' shows one") {
		t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	line := regexp.MustCompile(`(?m)^x\.data\.(\d{14})\d\d  (\S+ \S+) .* ms$`)
	for _, m := range line.FindAllStringSubmatch(e.stdout, -1) {
		named, err := time.Parse("20060102150405", m[1])
		sampled, serr := time.Parse(time.DateTime, m[2])
		if err != nil || serr != nil || named.Sub(sampled).Abs() > time.Hour {
			t.Errorf("the name of a file with samples of %s is %s", m[2], m[1])
		}
	}
	for _, args := range [][]string{{"report", "--json", "x.data"}, {"report", "x.data", "x.data"}, {"check", "x.data"},
		{"convert", "x.data", "-o", "out"}} {
		e := unspool(t, dir, args...)
		if says := "it was written as 5 files, the last of which is " + filepath.Base(names[2]) +
			": 'unspool report x.data' lists them"; e.status != statusFailure || !strings.Contains(e.stderr, says) ||
			e.stdout != "" {
			t.Errorf("%q: status %d\n%s%s", args, e.status, e.stdout, e.stderr)
		}
	}
	// The file itself is shown where there is one.
	if err := os.WriteFile(filepath.Join(dir, "x.data"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := unspool(t, dir, "report", "x.data"); e.status != 0 || !strings.HasPrefix(e.stdout, "file ") {
		t.Errorf("%+v", e)
	}
}

// zoneFile is a file of tzfile(5) for a zone that is always so many seconds from UTC.
func zoneFile(name string, seconds uint32) []byte {
	b := append([]byte("TZif"), make([]byte, 16+4*4)...)
	b = encoding.BigEndian.AppendUint32(b, 1)                   // types
	b = encoding.BigEndian.AppendUint32(b, uint32(len(name)+1)) // bytes of names
	b = encoding.BigEndian.AppendUint32(b, seconds)
	return append(append(b, 0, 0), name+"\x00"...)
}

// TestReportSaysWhen looks at the date in the header, in a zone, and asks for what was sampled at a time of day.
func TestReportSaysWhen(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	e := unspool(t, "", "report", data)
	line := regexp.MustCompile(`\nrecorded  (20\d\d-\d\d-\d\d) (\d\d:\d\d:\d\d)( to .*)? (\S+)\n`)
	at := line.FindStringSubmatch(e.stdout)
	if at == nil {
		t.Fatalf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	var all, some struct {
		Header struct {
			Samples uint64
			Began   string
		}
	}
	for _, c := range []struct {
		times string
		into  any
	}{{at[1] + "T" + at[2] + ",", &all}, {",", &all}, {"," + at[2] + ".999999", &some}} {
		e := unspool(t, "", "report", "--json", "--time", c.times, data)
		if err := json.Unmarshal([]byte(e.stdout), c.into); err != nil {
			t.Fatalf("--time %s: %v\n%s", c.times, err, e.stderr)
		}
	}
	if some.Header.Samples == 0 || some.Header.Samples >= all.Header.Samples {
		t.Errorf("until %s there are %d samples of %d", at[2], some.Header.Samples, all.Header.Samples)
	}
}
