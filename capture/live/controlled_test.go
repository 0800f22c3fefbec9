package live

import (
	"bufio"
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/live/control"
	"unspool/perfring"
	"unspool/testdata/programs"
)

// Faults adds the options that take a sample at each page fault in user mode, as programs.Faults.
func Faults(o Options) Options {
	o.Events = []perfring.Event{{Name: "page-faults", Type: unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_PAGE_FAULTS, ExcludeKernel: true, ExcludeHV: true}}
	o.Period = 1
	return o
}

// RecordControlled records processes that are there. Once samples are taken, begun is called; the recording ends when
// the processes do, or at stop.
func RecordControlled(t testing.TB, o Options, begun func(stop func())) Outcome {
	t.Helper()
	commands, acks := programs.FIFO(t), programs.FIFO(t)
	c, err := control.Open("fifo:" + commands.Name() + "," + acks.Name())
	if err != nil {
		t.Fatal(err)
	}
	o.Control, o.Delay = c, -1
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	type result struct {
		out Outcome
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := Record(ctx, o)
		ended <- result{out, err}
	}()
	lines := bufio.NewReader(acks)
	acknowledged := make(chan bool)
	go func() {
		line, _ := lines.ReadString('\n')
		acknowledged <- line == "ack\n"
	}()
	send := func(command string) {
		if _, err := commands.WriteString(command + "\n"); err != nil {
			t.Error(err)
		}
	}
	send("enable")
	select {
	case r := <-ended:
		t.Fatalf("the recording ended at once: %v", r.err)
	case is := <-acknowledged:
		if !is {
			t.Fatal("the recording does not begin")
		}
	}
	begun(func() { send("stop") })
	r := <-ended
	if r.err != nil || ctx.Err() != nil {
		t.Fatalf("%v, %v", r.err, ctx.Err())
	}
	return r.out
}
