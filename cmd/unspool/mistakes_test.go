package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// othersWords are those of Go's packages and of the parser of options, which nobody should have to read.
var othersWords = regexp.MustCompile(
	`strconv|pflag|parsing|flag|shorthand|invalid argument|invalid value|accepts \d+ arg|unexpected EOF|` +
		`exec: |listen tcp|lookup |unspool: (open|stat|create|read|mkdir) `)

// TestMistakes types what people mistype: each gives one line in words of our own, nothing on stdout, and the
// exit status of the manual pages.
func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"text": "this is no recording of anything", "short": "PERF", "empty": "",
		"cut": "PERFILE2\x68\x00\x00\x00\x00\x00\x00\x00",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const wholeNumber = "must be a whole number of at least 1"
	const pages = "must be a number of pages, or a size in K, M or G such as 4M, at most 4 GiB for each CPU"
	for _, c := range []struct {
		args   []string
		status int
		says   string // behind "unspool: ", and before where to read more
	}{
		// Commands.
		{[]string{"recrod"}, statusFailure, `unknown command "recrod": did you mean record?`},
		{[]string{"re"}, statusFailure, `unknown command "re": did you mean record or report?`},
		{[]string{"help", "recrod"}, statusFailure, `unknown command "recrod": did you mean record?`},
		{[]string{"help", "foo"}, statusFailure, `unknown command "foo"`},
		{[]string{"help", "foo", "bar"}, statusFailure, `unknown command "foo bar"`},
		{[]string{"help", "record", "twice"}, statusFailure, `unexpected argument "twice"`},
		{[]string{"tup"}, statusFailure, `unknown command "tup": did you mean top?`},
		{[]string{"frobnicate"}, statusFailure, `unknown command "frobnicate"`},
		{[]string{""}, statusFailure, `unknown command ""`},
		{[]string{"--", "record"}, statusFailure, `unknown command "record"`},
		{[]string{"doctor", "now"}, statusFailure, `unexpected argument "now"`},
		{[]string{"report", "a", "b", "c"}, statusFailure,
			`unexpected argument "c": report reads one recording, or two`},
		{[]string{"check", "a", "b"}, statusFailure, `unexpected argument "b": check reads one recording`},
		{[]string{"completion", "csh"}, statusFailure,
			`unknown shell "csh": there are bash, fish, powershell, zsh`},
		{[]string{"completion", "bash", "x"}, statusFailure, `unexpected argument "x"`},
		{[]string{"man"}, statusFailure, "give one folder to write the pages into"},
		{[]string{"live-unwinder", "x"}, statusFailure, `unexpected argument "x"`},
		{[]string{"live-unwinder", "--perf-fd", "x"}, statusFailure, `--perf-fd "x": must be FD or FD:CPU`},

		// Options.
		{[]string{"--nonsense"}, statusFailure, "unknown option --nonsense"},
		{[]string{"record", "--straict", "true"}, statusFailure,
			"unknown option --straict: did you mean --strict?"},
		{[]string{"report", "--fail-above", "1"}, statusFailure, "unknown option --fail-above"},
		{[]string{"record", "-ax"}, statusFailure, "unknown option -x"},
		{[]string{"record", "-z19", "true"}, statusFailure, "unknown option -1: the value of -z is given as -z=19"},
		{[]string{"record", "-z", "99", "--", "true"}, 127,
			"99: command not found; the level of -z is given as -z=99"},
		{[]string{"record", "-z", "-o", "x.folded", "99"}, 127,
			"99: command not found; the level of -z is given as -z=99"},
		{[]string{"record", "99"}, 127, "99: command not found"},
		{[]string{"record", "-d"}, statusFailure, "-d: a value is missing: -d SECONDS"},
		{[]string{"convert", "--symfs"}, statusFailure, "--symfs: a value is missing: --symfs DIR"},
		{[]string{"record", "--=x"}, statusFailure, `"--=x" is no option`},
		{[]string{"record", "--strict=perhaps", "true"}, statusFailure, "--strict=perhaps: must be true or false"},
		{[]string{"doctor", "--help=me"}, statusFailure, "--help=me: must be true or false"},

		// Values that are left out, by a variable or a command that gives nothing.
		{[]string{"record", "-p", "", "true"}, statusFailure, `-p "": must not be empty`},
		{[]string{"record", "--pid=", "-d", "1"}, statusFailure, `-p "": must not be empty`},
		{[]string{"top", "-t", ""}, statusFailure, `-t "": must not be empty`},
		{[]string{"record", "-a", "-u", ""}, statusFailure, `-u "": must not be empty`},
		{[]string{"record", "-a", "-C", ""}, statusFailure, `-C "": must not be empty`},
		{[]string{"record", "-a", "-G", ""}, statusFailure, `-G "": must not be empty`},
		{[]string{"record", "--control", "", "true"}, statusFailure, `--control "": must not be empty`},
		{[]string{"record", "--stats", "", "true"}, statusFailure, `--stats "": must not be empty`},
		{[]string{"report", "--comm", "", "text"}, statusFailure, `--comm "": must not be empty`},
		{[]string{"report", "--time", "", "text"}, statusFailure, `--time "": must not be empty`},
		{[]string{"compare", "--html", "", "text"}, statusFailure, `--html "": must not be empty`},

		// Numbers.
		{[]string{"record", "-F", "fast", "true"}, statusFailure, "-F fast: " + wholeNumber},
		{[]string{"record", "-F", "1e9", "true"}, statusFailure, "-F 1e9: " + wholeNumber},
		{[]string{"record", "-F", "-5", "true"}, statusFailure, "-F -5: " + wholeNumber},
		{[]string{"record", "-F", "", "true"}, statusFailure, `-F "": ` + wholeNumber},
		{[]string{"record", "-F", "0", "true"}, statusFailure, "-F 0: must be at least 1"},
		{[]string{"record", "-c", "9e99", "true"}, statusFailure, "-c 9e99: " + wholeNumber},
		{[]string{"record", "-c", "99999999999999999999", "true"}, statusFailure,
			"-c 99999999999999999999: is too large"},
		{[]string{"record", "--max-stack", "deep", "true"}, statusFailure,
			"--max-stack deep: must be a whole number"},
		{[]string{"record", "--max-stack", "99999999999999999999", "true"}, statusFailure,
			"--max-stack 99999999999999999999: is too large or too small"},
		{[]string{"record", "--max-stack", "0", "true"}, statusFailure, "--max-stack 0: must be 1 to 7000 frames"},
		{[]string{"convert", "text", "-o", "out", "-j", "0"}, statusFailure, "-j 0: must be 1 to 64 cores"},
		{[]string{"report", "--top", "ten"}, statusFailure, "--top ten: must be a whole number"},
		{[]string{"report", "--percent-limit", "few"}, statusFailure, "--percent-limit few: must be a number"},
		{[]string{"report", "--percent-limit", "NaN"}, statusFailure, "--percent-limit NaN: must be 0 to 100"},
		{[]string{"check", "--fail-above", "x"}, statusFailure,
			"--fail-above x: must be a percentage, or a source and one, as in cfi=0.01"},
		{[]string{"compare", "--fail-under", "same=x", "text"}, statusFailure,
			"--fail-under same=x: must be a class and a percentage, as in same=95"},

		// Sizes and times.
		{[]string{"record", "--stack-size", "huge", "true"}, statusFailure,
			"--stack-size huge: must be a number of bytes, or a size such as 16k"},
		{[]string{"record", "--stack-size", "9k9", "true"}, statusFailure,
			"--stack-size 9k9: must be a number of bytes, or a size such as 16k"},
		{[]string{"record", "--stack-size", "8kM", "true"}, statusFailure,
			"--stack-size 8kM: the unit must be K, M or G"},
		{[]string{"record", "--stack-size", "99999999999999999999", "true"}, statusFailure,
			"--stack-size 99999999999999999999: is too large"},
		{[]string{"record", "--stack-size", "100G", "true"}, statusFailure, "--stack-size 100G: is too large"},
		{[]string{"record", "--stack-size", "0", "true"}, statusFailure,
			"--stack-size 0: must be 8 to 65,528 bytes, a multiple of 8"},
		{[]string{"record", "--call-graph", "dwarf,12", "true"}, statusFailure,
			"--call-graph dwarf,12: must be 8 to 65,528 bytes, a multiple of 8"},
		{[]string{"record", "--last", "0", "true"}, statusFailure, "--last 0: must be 1 to 100,000,000 seconds"},
		{[]string{"record", "--last", "soon", "true"}, statusFailure,
			"--last soon: must be a number of seconds, or a time such as 90s or 5m"},
		{[]string{"record", "--switch-output=", "true"}, statusFailure,
			`--switch-output "": must be signal, a size such as 20M, or a time such as 30s`},
		{[]string{"record", "--switch-output", "--switch-max-files", "x", "true"}, statusFailure,
			"--switch-max-files x: must be a whole number"},
		{[]string{"record", "-D", "soon", "true"}, statusFailure,
			"-D soon: must be a number of milliseconds, a time such as 2s, or -1"},
		{[]string{"top", "--delay", "0"}, statusFailure, "--delay 0: must be 0.1 to 100,000,000 seconds"},
		{[]string{"top", "--delay", "-1"}, statusFailure, "--delay -1: must be 0.1 to 100,000,000 seconds"},
		{[]string{"top", "--delay", "NaN"}, statusFailure, "--delay NaN: must be 0.1 to 100,000,000 seconds"},
		{[]string{"top", "-d", "0"}, statusFailure, "-d 0: must be 0.001 to 100,000,000 seconds"},
		{[]string{"compare", "-d", "0s", "true"}, statusFailure, "-d 0s: must be 0.001 to 100,000,000 seconds"},
		{[]string{"record", "-d", "0", "-a"}, statusFailure, "-d 0: must be 0.001 to 100,000,000 seconds"},
		{[]string{"top", "-e", "cycles,instructions"}, statusFailure, "-e: top shows one event"},
		{[]string{"report", "--time", "5", "text"}, statusFailure, `--time "5": must be FROM,TO: ` +
			"seconds from the start, as in 1.5,30, or percentages, as in 10%,20%"},
		{[]string{"report", "--time", "9,2", "text"}, statusFailure,
			`--time "9,2": nothing lies between these times`},
		{[]string{"convert", "--time", "a,b", "text", "-o", "out"}, statusFailure,
			`--time "a" is not a number of seconds, nor a percentage`},

		// Targets.
		{[]string{"top", "now"}, statusFailure, `unexpected argument "now": top runs no command`},
		{[]string{"record", "-C", "1-x", "true"}, statusFailure,
			`-C: bad CPU list "1-x": must be as in 0,2-3`},
		{[]string{"record", "-t", "1,x"}, statusFailure, "-t x: a thread ID must be a positive number"},
		{[]string{"record", "-p", "0"}, statusFailure, "-p 0: a process ID must be 1 to 2147483647"},
		{[]string{"record", "-p", "no such name"}, statusMissing, "-p: no process is called no such name"},
		{[]string{"record", "-u", "no such user"}, statusFailure, "-u no such user: there is no such user"},
		{[]string{"record", "-G", "no/such"}, statusFailure, "-G no/such: there is no such cgroup"},
		{[]string{"record", "--control", "fd:9", "true"}, statusFailure,
			`--control: must be fifo:CTL or fifo:CTL,ACK, with paths of FIFOs, and not "fd:9"`},
		{[]string{"record", "-m", "4Q", "true"}, statusFailure,
			"-m 4Q: " + pages},
		{[]string{"record", "-m", "100T", "true"}, statusFailure, "-m 100T: " + pages},
		{[]string{"record", "-m", "5G", "true"}, statusFailure, "-m 5G: " + pages},
		{[]string{"record", "-m", "0", "true"}, statusFailure, "-m 0: " + pages},
		{[]string{"record", "--call-graph", "lbr,2", "true"}, statusFailure,
			"--call-graph lbr,2: must be dwarf, dwarf,BYTES, fp or lbr"},
		{[]string{"record", "-d", "soon", "true"}, statusFailure,
			"-d soon: must be a number of seconds, or a time such as 90s or 5m"},
		{[]string{"record", "-d", "-1", "true"}, statusFailure, "-d -1: must be 0.001 to 100,000,000 seconds"},

		// Processes and threads.
		{[]string{"record", "-p", "0"}, statusFailure, "-p 0: a process ID must be 1 to 2147483647"},
		{[]string{"record", "-p", "99999999999999999999"}, statusFailure,
			"-p 99999999999999999999: a process ID must be 1 to 2147483647"},
		{[]string{"record", "-p", ","}, statusFailure, `-p "": a process ID must be 1 to 2147483647`},
		{[]string{"record", "-p", "no such one"}, statusMissing, "-p: no process is called no such one"},
		{[]string{"record", "-p", "no such one,1,nor this"}, statusMissing,
			"-p: no process is called no such one or nor this"},
		{[]string{"record", "-p", `"a`}, statusFailure, `-p "a: a quotation mark is out of place`},
		{[]string{"report", "--pid", "1,x"}, statusFailure,
			"--pid 1,x: must be whole numbers, separated by commas"},
		{[]string{"report", "--pid", "99999999999999999999"}, statusFailure,
			"--pid 99999999999999999999: is too large or too small"},
		{[]string{"report", "--tid", "-1"}, statusFailure, "--tid -1: must be 0 to 2147483647"},
		{[]string{"report", "--comm", "["}, statusFailure,
			`--comm "[" is no pattern: a [ is not closed, or there is nothing behind a \`},

		// Events and formats.
		{[]string{"record", "-e", "frobnications", "true"}, statusFailure,
			`event "frobnications": unknown event`},
		{[]string{"record", "-e", "cpu-clock:z", "true"}, statusFailure,
			`event "cpu-clock:z": unknown modifier 'z' (known: u, k, h, H, G, p, P)`},
		{[]string{"record", "-e", ",", "true"}, statusFailure, `events ",": a name is missing`},
		{[]string{"convert", "text", "-o", "out", "--format", "gif"}, statusFailure,
			`unknown format "gif": there are ` +
				"perf, pprof, firefox, speedscope, flamegraph, folded, sysprof"},
		{[]string{"report", "--by", "luck"}, statusFailure,
			`--by: "luck" is none of function, comm, process, thread, image, source`},

		// Two recordings.
		{[]string{"report", "text", "none"}, statusFailure, "text: not a perf.data file"},
		{[]string{"report", "none", "text"}, statusFailure, "cannot open none: no such file or directory"},
		{[]string{"report", "-", "-"}, statusFailure, "standard input holds one recording, not two"},
		{[]string{"report", "--http", "text", "text"}, statusFailure,
			"--http shows one recording: --html writes a page about two"},
		{[]string{"report", "--by", "thread", "text", "text"}, statusFailure,
			"--by thread: of the threads of two recordings only the names can be compared: --by comm"},
		{[]string{"report", "--html", "-", "text", "text"}, statusFailure,
			"--html -: the difference goes to stdout: name a file"},
		{[]string{"report", "--html", "page.html", "text"}, statusFailure,
			"--html shows the difference of two recordings, A B: " +
				"'unspool convert FILE -o PAGE.html' writes a page about one"},
		{[]string{"report", "--html", "", "text", "text"}, statusFailure, `--html "": must not be empty`},
		{[]string{"report", "--html", "none/page.html", "text", "text"}, statusFailure,
			"cannot open none/page.html: no such file or directory"},
		{[]string{"report", "--absolute", "text"}, statusFailure,
			"--absolute is for the difference of two recordings, A B"},
		{[]string{"report", "--json", "--top", "3", "text", "text"}, statusFailure,
			"--top and --percent-limit cannot be used with --json, which writes everything"},
		{[]string{"compare", "text", "none"}, statusFailure, "text: not a perf.data file"},
		{[]string{"compare", "--fail-under", "same=9", "text", "text"}, statusFailure,
			"--fail-under cannot be used with two recordings"},
		{[]string{"compare", "--html", "-", "text", "text"}, statusFailure,
			"--html -: the comparison goes to stdout: name a file"},

		// Files and directories.
		{[]string{"report"}, statusFailure,
			"no perf.data here: 'unspool record -- COMMAND' makes one, 'unspool report FILE' reads another"},
		{[]string{"report", "none"}, statusFailure, "cannot open none: no such file or directory"},
		{[]string{"report", ""}, statusFailure, `cannot open "": no such file or directory`},
		{[]string{"report", "text"}, statusFailure, "text: not a perf.data file"},
		{[]string{"report", "short"}, statusFailure, "short: not a perf.data file"},
		{[]string{"report", "empty"}, statusFailure, "empty: empty"},
		{[]string{"report", "cut"}, statusFailure, "cut: header: the recording ends too early"},
		{[]string{"report", "."}, statusFailure, ".: a directory, not a perf.data file"},
		{[]string{"report", "text/x"}, statusFailure, "cannot open text/x: not a directory"},
		{[]string{"convert", "none", "-o", "out"}, statusFailure, "cannot open none: no such file or directory"},
		{[]string{"convert", "text"}, statusFailure, "no output given: -o FILE, or -o - for a pipe"},
		{[]string{"compare", "none"}, statusFailure, "cannot open none: no such file or directory"},
		{[]string{"check", "none"}, statusFailure, "cannot open none: no such file or directory"},
		{[]string{"report", "--symfs", "none", "text"}, statusFailure,
			"cannot find none: no such file or directory"},
		{[]string{"report", "--buildid-dir", "none", "text"}, statusFailure,
			"cannot find none: no such file or directory"},
		{[]string{"report", "--buildid-dir", "text", "text"}, statusFailure, "cannot open text: not a directory"},
		{[]string{"convert", "--buildid-dir", "none", "text", "-o", "out"}, statusFailure,
			"cannot find none: no such file or directory"},
		{[]string{"convert", "--buildid-dir", "none", "text", "-o", "out.folded"}, statusFailure,
			"cannot find none: no such file or directory"},
		{[]string{"check", "--buildid-dir", "none", "text"}, statusFailure,
			"cannot find none: no such file or directory"},
		{[]string{"compare", "--buildid-dir", "none", "--", "true"}, statusFailure,
			"cannot find none: no such file or directory"},
		{[]string{"top", "--symfs", "none"}, statusFailure, "cannot find none: no such file or directory"},
		{[]string{"record", "-o", "", "true"}, statusFailure, "-o: the file's name is empty"},
		{[]string{"record", "-o", ".", "true"}, statusFailure, "cannot create .: is a directory"},
		{[]string{"record", "-o", "none/x", "true"}, statusFailure,
			"cannot open none/x: no such file or directory"},
		{[]string{"man", "none"}, statusFailure, "cannot open none: no such file or directory"},

		// What cannot be had together, and addresses.
		{[]string{"record", "-a", "-p", "1"}, statusFailure,
			"-a and -p cannot be used together: -a already records every process"},
		{[]string{"report", "--http", "--json"}, statusFailure, "--http and --json cannot be used together"},
		{[]string{"report", "--http=localhost:http9", "text"}, statusFailure,
			"cannot listen at localhost:http9: there is no such port"},
		{[]string{"report", "--http=:99999", "text"}, statusFailure,
			"cannot listen at localhost:99999: invalid port"},
		{[]string{"report", "--http=192.0.2.1:80", "text"}, statusFailure,
			"cannot listen at 192.0.2.1:80: cannot assign requested address"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			e := unspool(t, dir, c.args...)
			e.fails(t, c.status, "")
			line, _, _ := strings.Cut(strings.TrimSuffix(e.stderr, "\n"), " (see 'unspool")
			if line != "unspool: "+c.says || e.stdout != "" {
				t.Errorf("%q, want %q; stdout %q", e.stderr, c.says, e.stdout)
			}
			if words := othersWords.FindString(e.stderr); words != "" {
				t.Errorf("%q has %q, which is not ours", e.stderr, words)
			}
		})
	}
}

// TestRefusals are mistakes of which the system tells, as a user without rights.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := nobodysDirectory(t)
	for name, mode := range map[string]os.FileMode{"secret": 0o600, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "closed"), 0o755); err != nil { // root's
		t.Fatal(err)
	}
	privilege := "process 1 is another user's: recording it takes a privilege\n  try: sudo " +
		filepath.Join(dir, "unspool")
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"report", "secret"}, statusFailure, "cannot open secret: permission denied"},
		{[]string{"convert", "secret", "-o", "out"}, statusFailure, "cannot open secret: permission denied"},
		{[]string{"record", "-o", "closed/perf.data", "true"}, statusFailure,
			"cannot create closed/perf.data: permission denied"},
		{[]string{"convert", "plain", "-o", "closed/out"}, statusFailure,
			"plain: not a perf.data file"},
		{[]string{"record", "./plain"}, 126, "./plain: cannot be run: permission denied"},
		{[]string{"record", "closed"}, 127, "closed: command not found"},
		{[]string{"record", "./closed"}, 126, "./closed: cannot be run: is a directory"},
		{[]string{"record", ""}, 127, "the command's name is empty"},
		{[]string{"record", "-p", "1"}, statusFailure, privilege + " record -p 1"},
		{[]string{"top", "-p", "1"}, statusFailure, privilege + " top -p 1"},
		{[]string{"record", "-p", "2147483647"}, statusFailure, "there is no process 2147483647, or it has ended"},
		{[]string{"man", "closed"}, statusFailure, "cannot open closed/unspool.1: permission denied"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			e := asNobody(t, dir, append([]string{c.args[0]}, c.args[1:]...)...)
			if e.status != c.status || e.stdout != "" {
				t.Errorf("status %d, want %d; stdout %q", e.status, c.status, e.stdout)
			}
			if !strings.Contains(e.stderr, "unspool: "+c.says+"\n") || othersWords.MatchString(e.stderr) {
				t.Errorf("%q, want %q", e.stderr, c.says)
			}
		})
	}
}
