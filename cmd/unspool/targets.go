package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unspool/capture/live"
	"unspool/perfring"
)

// targetFlags say of what samples are taken.
type targetFlags struct {
	all    bool
	pids   []string // or names
	tids   []string
	user   string
	cpus   string
	cgroup string
	wait   bool // until there are processes with the names in pids
}

// add adds the options to a command.
func (f *targetFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.BoolVarP(&f.all, "all-cpus", "a", false, "record the whole system")
	fl.StringSliceVarP(&f.pids, "pid", "p", nil,
		"record the running process `PID`, or several, PID,PID…, or all with a NAME (status 1 if none has it)")
	fl.StringSliceVarP(&f.tids, "tid", "t", nil,
		"record the running thread `TID` only, or several; not the threads and processes that it starts")
	fl.StringVarP(&f.user, "uid", "u", "", "record the running processes of `USER`, a name or a number")
	fl.StringVarP(&f.cpus, "cpu", "C", "",
		"record only what runs on `CPUS`, as 0,2-3; without -p, -t and -u of the whole system")
	fl.StringVarP(&f.cgroup, "cgroup", "G", "",
		"record the processes in a cgroup: a `DIRECTORY`, which may be relative to /sys/fs/cgroup, or a UNIT")
	refuseEmpty(fl, "pid", "tid", "uid", "cpu", "cgroup")
	c.RegisterFlagCompletionFunc("pid", completeProcesses)
	c.RegisterFlagCompletionFunc("tid", cobra.NoFileCompletions)
	c.RegisterFlagCompletionFunc("uid", cobra.NoFileCompletions)
	c.RegisterFlagCompletionFunc("cpu", cobra.NoFileCompletions)
	_ = c.MarkFlagDirname("cgroup")
}

// given reports whether there is anything to record besides a COMMAND.
func (f *targetFlags) given() bool { return f.all || len(f.options()) > 0 || f.cpus != "" }

// options are those in use of which there can be one only.
func (f *targetFlags) options() (used []string) {
	for _, o := range []struct {
		name string
		set  bool
	}{
		{"-p", len(f.pids) > 0}, {"-t", len(f.tids) > 0}, {"-u", f.user != ""}, {"-G", f.cgroup != ""},
	} {
		if o.set {
			used = append(used, o.name)
		}
	}
	return used
}

// check returns an error for options that exclude one another.
func (f *targetFlags) check() error {
	used := f.options()
	switch {
	case len(used) > 1:
		return fmt.Errorf("%s and %s cannot be used together", used[0], used[1])
	case f.all && len(used) > 0 && f.cgroup == "":
		return fmt.Errorf("-a and %s cannot be used together: -a already records every process", used[0])
	case f.wait && !slices.ContainsFunc(f.pids, isName):
		return errors.New("--wait waits for a process with a name: it needs -p NAME")
	}
	return nil
}

// targets looks up what the options name. The processes are known already if another process has looked them
// up.
func (f *targetFlags) targets(o *live.Options, known []int, quiet bool) (err error) {
	if f.cpus != "" {
		if o.CPUs, err = perfring.ParseCPUs(f.cpus); err != nil {
			return fmt.Errorf("-C: %w", err)
		}
	}
	switch {
	case f.cgroup != "":
		o.Cgroup, err = openCgroup(f.cgroup, cgroupRoots)
	case len(f.tids) > 0:
		o.TIDs, o.PIDs, err = threads(f.tids)
	case known != nil:
		o.PIDs = known
	case f.user != "":
		o.PIDs, err = processesOf(f.user)
	case len(f.pids) > 0:
		o.PIDs, err = f.processes(quiet)
	}
	o.AllCPUs = f.all || f.cgroup != "" || f.cpus != "" && len(o.PIDs) == 0
	// Processes that are not named one by one may end while they are looked up.
	o.PIDsMayEnd = f.user != "" || slices.ContainsFunc(f.pids, isName)
	return err
}

// waitEvery is the time between two looks at the names of all processes, of which a thousand take some milliseconds.
const waitEvery = 200 * time.Millisecond

// processes finds those of -p, if need be when they have been started.
func (f *targetFlags) processes(quiet bool) ([]int, error) {
	for said := quiet; ; said = true {
		pids, err := processes(f.pids)
		var missing *missingProcess
		if !f.wait || !errors.As(err, &missing) {
			return pids, err
		}
		if !said {
			say("%s yet: waiting for one", missing)
		}
		time.Sleep(waitEvery)
	}
}

// ended means that what was recorded has ended, which were these processes, and what records one that comes back.
func (f *targetFlags) ended(pids []int) string {
	names := slices.DeleteFunc(slices.Clone(f.pids), numeric)
	switch {
	case len(f.tids) > 0:
		return "the recording is over, as the recorded threads have ended"
	case len(pids) != 1:
		what := "the recorded processes"
		if len(names) > 0 {
			what = "the processes called " + strings.Join(names, " and ")
		}
		return "the recording is over, as " + what + " have ended" + f.restartHint(names)
	case len(names) == 1:
		return fmt.Sprintf("the recording is over, as process %s (%d) has ended%s", names[0], pids[0], f.restartHint(names))
	}
	return fmt.Sprintf("the recording is over, as process %d has ended%s", pids[0], f.restartHint(names))
}

func (f *targetFlags) restartHint(names []string) string {
	hint := "; -G UNIT records a service also when it restarts"
	if len(names) > 0 {
		hint += ", and --wait the next process of that name"
	}
	return hint
}

// threads reads the values of -t, and finds the processes of these threads.
func threads(values []string) (tids, pids []int, err error) {
	for _, v := range values {
		tid, err := strconv.Atoi(v)
		if err != nil || tid <= 0 {
			return nil, nil, fmt.Errorf("-t %s: a thread ID must be a positive number", v)
		}
		pid, err := numberInStatus(tid, "Tgid", 0)
		if err != nil {
			return nil, nil, fmt.Errorf("-t %d: there is no such thread", tid)
		}
		tids, pids = append(tids, tid), append(pids, pid)
	}
	slices.Sort(tids)
	slices.Sort(pids)
	return slices.Compact(tids), slices.Compact(pids), nil
}

// processesOf finds the processes with the rights of a user, as ps -u does. This process is not among those.
func processesOf(name string) (pids []int, err error) {
	uid, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		u, err := osuser.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("-u %s: there is no such user", name)
		}
		if uid, err = strconv.ParseUint(u.Uid, 10, 32); err != nil {
			return nil, err
		}
	}
	const effective = 1 // proc_pid_status(5): real, effective, saved set and file system UIDs
	err = eachProcess(func(pid int, _ string) {
		if is, err := numberInStatus(pid, "Uid", effective); err == nil && is == int(uid) && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	})
	if err == nil && len(pids) == 0 {
		err = &missingProcess{fmt.Sprintf("-u: %s has no process", name)}
	}
	slices.Sort(pids)
	return pids, err
}

// numberInStatus reads one of the numbers of a field of /proc/ID/status.
func numberInStatus(id int, field string, index int) (int, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id), "status"))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		numbers, ok := strings.CutPrefix(lines.Text(), field+":")
		if values := strings.Fields(numbers); ok && index < len(values) {
			return strconv.Atoi(values[index])
		}
	}
	return 0, errors.New("no such field")
}
