package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unspool/capture/symbols/runtimes"
	"unspool/unwind/jit/jitdump"
	"unspool/unwind/jit/perfmap"
	"unspool/vmas/process"
)

// Generated says of a process whether the code that it generates will have names, and whole stacks.
func (m *Environment) Generated(pid uint32) []Check {
	c := Check{Name: fmt.Sprintf("process %d", pid)}
	is, err := m.mapped(pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.State, c.Detail = Warning, "it has ended"
		return []Check{c}
	case err != nil:
		c.State, c.Detail = Warning, fmt.Sprintf("what it maps cannot be read: %v", err)
		c.Fix = m.sudo(true)
		return []Check{c}
	}
	r := runtimes.Of(slices.Values(is.files))
	if r == nil && !is.generates {
		c.Detail = "all of its code is in files"
		return []Check{c}
	}
	who := "it"
	if r != nil {
		who = r.Name
	}
	number, path, problem := m.perfMap(pid)
	switch {
	case is.dump:
		c.Detail = who + " writes the names of the code that it generates to a jitdump"
	case path != "" && problem == nil:
		c.Detail = fmt.Sprintf("the names of the code that %s generates are in %s", who, path)
	case r != nil && r.Interprets && !is.generates:
		c.State = Warning
		c.Detail = fmt.Sprintf("%s interprets functions, which will not be in the stacks: %s", who, r.Names(pid))
	case problem != nil:
		c.State = Warning
		c.Detail = fmt.Sprintf("%s, with the names of the code that %s generates, is not used: %v",
			perfmap.Path(number), who, problem)
	default:
		c.State = Warning
		c.Detail = fmt.Sprintf("code that %s generates will have no names, as there is no %s: %s", who,
			perfmap.Path(number), r.Names(pid))
	}
	checks := []Check{c}
	if r != nil && !r.Keeps(m.commandLine(pid)) {
		checks = append(checks, Check{Name: fmt.Sprintf("stacks of %d", pid), State: Warning,
			Detail: fmt.Sprintf("code that %s generates has no frame pointers, as far as its command line says, so "+
				"stacks may end there: %s", who, r.Frames())})
	}
	return checks
}

// mapped is what a process has mapped as code.
type mapped struct {
	files     []string
	generates bool // there is code in memory without a file
	dump      bool // a jitdump
}

// mostMaps bounds what is read of a process's maps.
const mostMaps = 8 << 20

func (m *Environment) mapped(pid uint32) (is mapped, err error) {
	file, err := os.Open(m.of(pid, "maps"))
	if err != nil {
		return is, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostMaps))
	if err != nil {
		return is, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 6) // addresses, access, offset, device, inode
		if len(fields) < 6 || !strings.Contains(fields[1], "x") {
			continue
		}
		switch path := strings.TrimSpace(fields[5]); {
		case path == "" || strings.HasPrefix(path, "[anon"):
			is.generates = true
		case jitdump.IsName(path):
			is.dump = true
		case path[0] == '/':
			is.files = append(is.files, path)
		}
	}
	return is, nil
}

// of is the path of a file in a process's folder.
func (m *Environment) of(pid uint32, name string) string {
	return filepath.Join(m.Proc, strconv.FormatUint(uint64(pid), 10), name)
}

// perfMap looks for the perf map of a process. The path is "" if there is none; the problem says why it is not used.
func (m *Environment) perfMap(pid uint32) (number uint32, path string, problem error) {
	text, err := readText(m.of(pid, "status"))
	is := process.ParseStatus(text)
	if number = is.Own; number == 0 {
		number = pid
	}
	if err != nil {
		return number, "", nil
	}
	file, err := process.Direct(m.Proc).OpenPerfMap(pid, number)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return number, "", err
	}
	defer file.Close()
	return number, perfmap.Path(number), is.Wrote(file)
}

// commandLine is that of a process, as far as it may be read.
func (m *Environment) commandLine(pid uint32) []string {
	text, err := readText(m.of(pid, "cmdline"))
	if err != nil {
		return nil
	}
	return strings.Split(text, "\x00")
}
