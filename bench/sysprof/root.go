package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// suites are the releases.
var suites = []string{"trixie", "sid"}

const helper = "/usr/libexec/sysprof-live-unwinder"

// A root is a Debian release in a folder, with its system services while it is open.
type root struct {
	dir      string
	version  string // of Sysprof
	services []*exec.Cmd
	clock    bool // events of the CPU's cycles are replaced by those of its clock
}

//go:embed inside/clock.c
var clockSource []byte

// openRoot mounts what a root needs, puts unspool beside the helper, and starts the services. The mounts end
// with this process's mount namespace.
func openRoot(dir, unspool, module string) (r *root, err error) {
	r = &root{dir: dir}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{"proc", "proc", "proc", 0}, {"/sys", "sys", "", unix.MS_BIND | unix.MS_REC},
		{"/dev", "dev", "", unix.MS_BIND | unix.MS_REC}, {"tmpfs", "run", "tmpfs", 0}, {"tmpfs", "tmp", "tmpfs", 0},
	} {
		if err := unix.Mount(m.from, r.in(m.to), m.kind, m.flags, ""); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	if err := r.prepare(unspool, module); err != nil {
		return nil, err
	}
	out, err := r.command("sysprof-cli", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("sysprof-cli --version: %w", err)
	}
	r.version = regexp.MustCompile(`\d[\d.a-z]*`).FindString(string(out))
	return r, r.start()
}

func (r *root) in(path string) string { return filepath.Join(r.dir, path) }

// prepare has polkit allow everything, diverts the helper, and builds what runs in the root.
func (r *root) prepare(unspool, module string) error {
	rules := r.in("etc/polkit-1/rules.d")
	allow := []byte("polkit.addRule(function() { return polkit.Result.YES; });\n")
	if err := errors.Join(os.MkdirAll(rules, 0o755),
		os.WriteFile(filepath.Join(rules, "00-all.rules"), allow, 0o644),
		os.MkdirAll(r.in("run/dbus"), 0o755), os.Chmod(r.in("tmp"), 0o777)); err != nil {
		return err
	}
	if _, err := os.Lstat(r.in(helper + ".distrib")); err != nil {
		divert := r.command("dpkg-divert", "--local", "--rename", "--add", helper)
		if out, err := divert.CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg-divert: %w: %s", err, out)
		}
	}
	content, err := os.ReadFile(unspool)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.in("usr/bin/unspool"), content, 0o755); err != nil {
		return err
	}
	work := filepath.Join(module, "bench/workloads/work")
	for from, to := range map[string]string{
		filepath.Join(work, "work.cc"): "work.cc", filepath.Join(module, "testdata/programs/src/burn.c"): "burn.c",
		filepath.Join(module, "testdata/programs/src/storm.c"): "storm.c",
		filepath.Join(module, "testdata/programs/src/chain.h"): "chain.h",
	} {
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.in(filepath.Join("tmp", to)), b, 0o644); err != nil {
			return err
		}
	}
	r.clock = !hasCycles()
	if err := os.WriteFile(r.in("tmp/clock.c"), clockSource, 0o644); err != nil {
		return err
	}
	build := r.command("sh", "-ec", `cd /tmp
gcc -O2 -pthread -o storm storm.c; gcc -O2 -pthread -o burn burn.c
gcc -O2 -shared -fPIC -o clock.so clock.c
g++ -std=c++17 -E -o work.ii work.cc`)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the workloads: %w: %s", err, out)
	}
	return nil
}

// hasCycles reports whether this machine has a counter of CPU cycles, which Sysprof samples by.
func hasCycles() bool {
	a := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Sample: 1200000, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	fd, err := unix.PerfEventOpen(&a, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// command is a command in the root. It ends with this process.
func (r *root) command(name string, args ...string) *exec.Cmd {
	path := name
	if !strings.Contains(name, "/") {
		path = "/usr/bin/" + name
	}
	return &exec.Cmd{
		Path: path, Args: append([]string{name}, args...), Dir: "/tmp",
		Env:         []string{"PATH=/usr/bin:/usr/sbin:/bin:/sbin", "HOME=/root", "LANG=C.UTF-8"},
		SysProcAttr: &syscall.SysProcAttr{Chroot: r.dir, Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
}

// start starts the services, and waits until sysprofd has its name on the bus.
func (r *root) start() error {
	for _, args := range [][]string{
		{"/usr/bin/dbus-daemon", "--system", "--nofork", "--nopidfile"},
		{"/usr/lib/polkit-1/polkitd", "--no-debug"}, {"/usr/libexec/sysprofd"},
	} {
		c := r.command(args[0], args[1:]...)
		if r.clock && strings.HasSuffix(args[0], "sysprofd") {
			c.Env = append(c.Env, "LD_PRELOAD=/tmp/clock.so")
		}
		log, err := os.OpenFile(r.in("run/services.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		c.Stdout, c.Stderr = log, log
		err = c.Start()
		log.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		r.services = append(r.services, c)
		time.Sleep(500 * time.Millisecond)
	}
	for range 40 {
		if strings.Contains(r.printed(), "org.gnome.Sysprof3") {
			return nil
		}
		time.Sleep(250 * time.Millisecond)
	}
	return fmt.Errorf("sysprofd does not start: %s", r.printed())
}

// printed is what the services have printed.
func (r *root) printed() string {
	b, _ := os.ReadFile(r.in("run/services.log"))
	return string(b)
}

// use has Sysprof start its own helper, or unspool.
func (r *root) use(ours bool) error {
	target := helper + ".distrib"
	if ours {
		target = "/usr/bin/unspool"
	}
	_ = os.Remove(r.in(helper))
	return os.Symlink(target, r.in(helper))
}

// close ends the services and unmounts what they used.
func (r *root) close() {
	for _, c := range r.services {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	for _, m := range []string{"proc", "sys", "dev", "run", "tmp"} {
		_ = unix.Unmount(r.in(m), unix.MNT_DETACH)
	}
}
