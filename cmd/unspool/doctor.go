package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"unspool/capture/doctor"
	"unspool/capture/sandbox"
)

func doctorCommand(status *int) *cobra.Command {
	var color colouring
	c := &cobra.Command{
		Use:   "doctor [--color WHEN]",
		Short: "Check that this machine can record, and say what to change if not",
		Long: `Record a command (-- COMMAND), a process (-p) and the whole machine (-a) for 0.2 seconds
each, keep nothing of it, and look into the processes that run. Then say what works,
what is missing, for instance the kernel's part of the stacks, the stacks of other users'
processes, or debug information, and which command fixes it.`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			checks := diagnose()
			if !doctor.Able(checks) {
				*status = 1
			}
			width := 80
			if isTerminal(os.Stdout) {
				width = min(columns(os.Stdout), widest)
			}
			return doctor.Print(os.Stdout, checks, width, color.on(os.Stdout))
		},
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
	}
	color.add(c)
	return c
}

// widest is how many columns of a terminal are used at most: longer lines are hard to read.
const widest = 110

// diagnose looks at the machine with the capabilities that a recording has.
func diagnose() []doctor.Check {
	if err := sandbox.Raise(); err != nil {
		return []doctor.Check{{Name: "capabilities", State: doctor.Fail, Detail: err.Error()}}
	}
	return append(doctor.Run(), checkConfinement())
}

// checkConfinement says which rights a recording, and what reads it, give up on this system, by trying it in
// other processes.
func checkConfinement() doctor.Check {
	c := doctor.Check{Name: "confinement"}
	recording, err := sandbox.Try()
	reading, rerr := sandbox.TryReading()
	switch {
	case errors.Join(err, rerr) != nil:
		c.State, c.Detail = doctor.Warning, fmt.Sprintf("cannot be tried: %v", errors.Join(err, rerr))
	case len(recording.Missing)+len(reading.Missing) > 0:
		c.State = doctor.Warning
		c.Detail = fmt.Sprintf("recording is %v; reading is %v", recording, reading)
	default:
		c.Detail = "recording and reading give up the rights that they do not need"
	}
	return c
}
