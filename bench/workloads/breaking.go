package workloads

import (
	_ "embed"
	"fmt"
	"os/exec"
	"time"
)

var (
	//go:embed work/breakjoins.c
	workBreakJoins string
	//go:embed work/breakjoins.py
	workBreakJoinsPython string
	//go:embed work/growing.go.txt
	workGrowing string
)

// BreakingModes name the programs in which what is seen of a stack before and after a sample need not have
// been so in between: by chance, functions are left and entered again at the same place from somewhere else.
var BreakingModes = []string{
	"callers", "recursion", "longjmp", "coroutines", "signals", "altstack", "fork", "samepid", "threads", "gaps",
	"largeframe", "leafframe", "python", "growing",
}

// Breaking are these programs, each with several periods.
var Breaking = breaking()

func breaking() (all []Program) {
	for _, mode := range BreakingModes {
		for period := 100 * time.Microsecond; period <= 100*time.Millisecond; period *= 10 {
			if mode != "python" || period > time.Millisecond { // to go down takes longer
				all = append(all, BreakingProgram(mode, period, 3*time.Second))
			}
		}
	}
	return all
}

// BreakingProgram is one of these programs. It runs for some time, and changes its stack once each period.
func BreakingProgram(mode string, period, duration time.Duration) Program {
	p := Program{
		Name:    fmt.Sprintf("%s-%d", mode, period.Microseconds()),
		needs:   []need{{"gcc", "gcc"}},
		version: "gcc -dumpfullversion",
		prepare: file("breakjoins.c", workBreakJoins) + "gcc -O2 -pthread -o breakjoins breakjoins.c",
	}
	run := "./breakjoins " + mode
	switch mode {
	case "python":
		p.needs = append(p.needs, need{"python3", "python3"})
		p.prepare = file("breakjoins.c", workBreakJoins) + file("breakjoins.py", workBreakJoinsPython) +
			"gcc -O2 -pthread -fPIC -shared -o breakjoins.so breakjoins.c"
		run = "python3 breakjoins.py"
	case "growing":
		p.needs = []need{{"go", "golang"}}
		p.prepare = file("growing.go", workGrowing) + "go build growing.go"
		run = "./growing"
	}
	p.run = fmt.Sprintf("$RECORD %s %d %d", run, period.Microseconds(), duration.Milliseconds())
	return p
}

// Command runs the program, which has been prepared, in one process.
func (w *Workload) Command() *exec.Cmd {
	c := w.command("sh", "-ec", w.run)
	c.Env = append(c.Env, "RECORD=exec")
	return c
}
