package workloads

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Program is a program that is recorded, and what it needs.
// The scripts run by sh -e in an empty folder of their own. ROOT names the folder of
// this module, and RECORD is a command that records the command behind it. That
// must not be a shell that execs another program: perf 6.1 loses the frames of
// libraries that were mapped before the exec.
type Program struct {
	Name    string
	needs   []need
	version string // script that prints the version somewhere in its first line
	prepare string // script that runs before the recording
	serve   string // script that execs a server; it is recorded with its children
	run     string // script: what is recorded, or with a server what keeps it busy
}

// A need is an executable, or the path of another file, and the Debian package that has
// it, empty if no package is to be installed for it.
type need struct{ exe, pkg string }

// searchPath is where executables are looked for: distribution's programs
// before others of the same name, and places that PATH often lacks.
func searchPath() string {
	dirs := []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"}
	postgres, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	dirs = append(dirs, postgres...)
	if home, err := os.UserHomeDir(); err == nil {
		toolchains, _ := filepath.Glob(filepath.Join(home, ".rustup/toolchains/*/bin"))
		dirs = append(dirs, toolchains...)
		dirs = append(dirs, filepath.Join(home, ".cargo/bin"))
	}
	return strings.Join(append(dirs, os.Getenv("PATH")), ":")
}

// Missing is the first executable that the program needs and that is not there.
func (p *Program) Missing() string {
	for _, n := range p.needs {
		if !found(n.exe) {
			return n.exe
		}
	}
	return ""
}

func found(exe string) bool {
	if filepath.IsAbs(exe) {
		_, err := os.Stat(exe)
		return err == nil
	}
	return slices.ContainsFunc(filepath.SplitList(searchPath()), func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, exe))
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	})
}

// Install installs packages that the programs need and that are missing. Programs for
// which this fails are left out of the table.
func Install(programs []Program) {
	var pkgs []string
	for _, p := range append([]Program{{needs: []need{{"perf", "linux-perf"}}}}, programs...) {
		for _, n := range p.needs {
			if n.pkg != "" && !found(n.exe) && !slices.Contains(pkgs, n.pkg) {
				pkgs = append(pkgs, n.pkg)
			}
		}
	}
	if len(pkgs) == 0 {
		return
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		fmt.Fprintln(os.Stderr, "no apt-get here; please install what corresponds to:", strings.Join(pkgs, " "))
		return
	}
	fmt.Fprintln(os.Stderr, "installing with apt-get what the table is about:", strings.Join(pkgs, " "))
	apt := func(args ...string) error {
		c := exec.Command("apt-get", append([]string{"-qq"}, args...)...)
		// RUNLEVEL=1 keeps invoke-rc.d from starting the servers.
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		out, err := c.CombinedOutput()
		if err != nil {
			fmt.Fprintf(os.Stderr, "apt-get %s: %v\n%s", args[0], err, out)
		}
		return err
	}
	install := []string{"install", "-y", "--no-install-recommends"}
	_ = apt("update") // if it fails, the present lists may be good enough
	if apt(append(install, pkgs...)...) == nil || len(pkgs) == 1 {
		return
	}
	// If one of several does not exist, apt-get installs none.
	for _, p := range pkgs {
		_ = apt(append(install, p)...)
	}
}

// A Workload is a program in an empty folder of its own.
type Workload struct {
	*Program
	Root string // of this module
	Dir  string
	Freq int // samples per second and CPU
	// StackSize is how many bytes of each stack the kernel copies.
	StackSize int
	Data      bool // record mappings of data as well
}

func (w *Workload) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = w.Dir
	// GOROOT is of the Go that runs this program, and may not be of the one that is found.
	c.Env = append(os.Environ(), "ROOT="+w.Root, "PATH="+searchPath(), "LC_ALL=C", "TMPDIR="+w.Dir, "GOROOT=")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// finish runs a command to its end or kills it, with its children, when it
// takes too long.
func finish(c *exec.Cmd, limit time.Duration) error {
	var out bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &out
	}
	c.Stderr = &out
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		return err
	}
	kill := time.AfterFunc(limit, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err := c.Wait()
	if !kill.Stop() {
		err = fmt.Errorf("not done after %v", limit)
	}
	if err != nil {
		tail := out.Bytes()
		tail = tail[max(0, len(tail)-1000):]
		return fmt.Errorf("%w\n%s", err, tail)
	}
	return nil
}

// Version is the program's version, as the program prints it.
func (w *Workload) Version() string {
	c := w.command("sh", "-c", w.version)
	out, _ := c.Output()
	// The first word with a digit and a dot in it, without what surrounds it.
	first, _, _ := strings.Cut(string(out), "\n")
	for word := range strings.FieldsSeq(first) {
		for _, part := range strings.Split(word, "/") {
			part = strings.Trim(part, "()v,\"")
			part = strings.TrimPrefix(part, "go")
			if part != "" && part[0] >= '0' && part[0] <= '9' {
				part, _, _ = strings.Cut(part, "-")
				part, _, _ = strings.Cut(part, "+")
				return part
			}
		}
	}
	return ""
}

// Prepare makes the files that the program works on.
func (w *Workload) Prepare() error {
	if w.prepare == "" {
		return nil
	}
	if err := finish(w.command("sh", "-ec", w.prepare), 2*time.Minute); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// Loop runs the program, which has been prepared, over and over until stop is called: on
// one CPU, or on any if cpu is negative.
func (w *Workload) Loop(cpu int) (stop func(), err error) {
	args := []string{"sh", "-ec", "while :; do\n" + w.run + "\ndone"}
	if cpu >= 0 {
		args = append([]string{"taskset", "-c", strconv.Itoa(cpu)}, args...)
	}
	c := w.command(args[0], args[1:]...)
	c.Env = append(c.Env, "RECORD=")
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	}, nil
}

// Record makes a recording with raw stacks in the file data.
func (w *Workload) Record(data string) error {
	if err := w.Prepare(); err != nil {
		return err
	}
	args := []string{"perf", "record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(w.Freq), "-m", "8M",
		"--call-graph", "dwarf," + strconv.Itoa(w.StackSize), "-o", data}
	if w.Data {
		args = append(args, "-d")
	}
	return w.RecordBy(args...)
}

// RecordBy records the program, which has been prepared, with a command that takes a command to record behind
// --, and processes to record with -p.
func (w *Workload) RecordBy(args ...string) error {
	if w.serve != "" {
		server := w.command("sh", "-ec", w.serve)
		log, err := os.Create(filepath.Join(w.Dir, "server.log"))
		if err != nil {
			return err
		}
		defer log.Close()
		server.Stdout, server.Stderr = log, log
		if err := server.Start(); err != nil {
			return err
		}
		defer func() {
			_ = server.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL) })
			_ = server.Wait()
			kill.Stop()
		}()
		time.Sleep(time.Second) // until it listens and has started its children
		args = append(args, "-p", strings.Join(family(server.Process.Pid), ","))
	}
	c := w.command("sh", "-ec", w.run)
	c.Env = append(c.Env, "RECORD="+strings.Join(append(args, "--"), " "))
	if err := finish(c, 2*time.Minute); err != nil {
		serverLog, _ := os.ReadFile(filepath.Join(w.Dir, "server.log"))
		return fmt.Errorf("%w\n%s", err, serverLog)
	}
	return nil
}

// family returns a process and all its descendants.
func family(pid int) []string {
	name := strconv.Itoa(pid)
	all := []string{name}
	children, _ := os.ReadFile("/proc/" + name + "/task/" + name + "/children")
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			all = append(all, family(n)...)
		}
	}
	return all
}
