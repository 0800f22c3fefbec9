package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// Sampled is what samples of all CPUs were of.
type Sampled struct {
	Samples int
	Outside int // of these, in user code of processes outside of this process's PID namespace
}

// tryFor is how long the whole machine is sampled to see what comes of it.
const tryFor = 100 * time.Millisecond

// wholeMachine tries to sample every process. In a container with a PID namespace of its own the kernel
// samples the others, too, and does not say which they are.
func (m *Machine) wholeMachine() Check {
	c := Check{Name: "whole machine"}
	s, err := m.Sample(tryFor)
	if err != nil {
		c.State = Warning
		c.Detail = "-a does not work: " + err.Error()
		return c
	}
	c.Detail = fmt.Sprintf("-a samples every process: %d samples in %.1f s", s.Samples, tryFor.Seconds())
	switch {
	case s.Outside > 0:
		c.Detail = fmt.Sprintf("of %d samples in %.1f s, %d were of processes outside of this container's PID "+
			"namespace: -a leaves these out", s.Samples, tryFor.Seconds(), s.Outside)
	case !m.hostNamespace():
		c.Detail = "this container has a PID namespace of its own: -a leaves out what runs outside of it"
	default:
		return c
	}
	c.State = Warning
	c.Fix = "docker run --pid=host IMAGE"
	return c
}

// hostNamespace says whether this process is in the PID namespace that all others are below of.
func (m *Machine) hostNamespace() bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO in include/linux/proc_ns.h
	link, err := os.Readlink(filepath.Join(m.Proc, "self/ns/pid"))
	return err != nil || link == first
}

// sampleAll samples user code on all CPUs.
func sampleAll(d time.Duration) (s Sampled, err error) {
	source, err := perfring.Open(perfring.Target{AllCPUs: true}, perfring.Options{
		Events: []perfring.Event{{Name: "cpu-clock", Type: unix.PERF_TYPE_SOFTWARE,
			Config: unix.PERF_COUNT_SW_CPU_CLOCK, ExcludeKernel: true}},
		NoStack: true, StackSize: 8, Pages: 16,
	})
	if err != nil {
		return s, err
	}
	defer source.Close()
	if err := source.Enable(); err != nil {
		return s, err
	}
	for end := time.Now().Add(d); time.Now().Before(end); { // something has to run
	}
	if err := source.Disable(); err != nil {
		return s, err
	}
	format := source.Format()
	return s, source.Flush(func(r perfring.Record) error {
		var sm perfring.Sample
		if r.Type() != perfring.RecordSample || format.Sample(r, &sm) != nil {
			return nil
		}
		s.Samples++
		if sm.PID == 0 {
			s.Outside++
		}
		return nil
	})
}

// mappings tries to read what the processes that run have mapped. It returns how many there are, and of how
// many that is refused.
func (m *Machine) mappings() (all, refused int) {
	entries, err := os.ReadDir(m.Proc)
	if err != nil {
		return 0, 0
	}
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil {
			continue
		}
		f, err := os.Open(filepath.Join(m.Proc, e.Name(), "maps"))
		if err == nil {
			_, err = f.Read(make([]byte, 1))
			f.Close()
		}
		all++
		if isPermission(err) {
			refused++
		}
	}
	return all, refused
}
