package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"unspool/capture/rights/sandbox"
	"unspool/capture/verdict/doctor"
)

func doctorCommand(status *int) *cobra.Command {
	var color colouring
	var of []string
	c := &cobra.Command{
		Use:   "doctor [-p PID[,PID…]] [--color WHEN]",
		Short: "Check that this machine can record, and say what to change if not",
		Long: `Record a command (-- COMMAND), a process (-p) and the whole machine (-a) for 0.2 seconds
each, keep nothing of it, and look into the processes that run. Then say what works,
what is missing, for instance the kernel's part of the stacks, the stacks of other users'
processes, or debug information, and which command fixes it.

With -p, say also whether the code that a process generates (node, Java, Python …) will
have names and whole stacks, and what to start it with if not.`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			pids, err := processes(of)
			if err != nil {
				return badOptions("unspool doctor", err)
			}
			checks := diagnose(pids)
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
	c.Flags().StringSliceVarP(&of, "pid", "p", nil,
		"look at the process `PID` as well, or several, PID,PID…, or all with a NAME")
	refuseEmpty(c.Flags(), "pid")
	c.RegisterFlagCompletionFunc("pid", completeProcesses)
	color.add(c)
	return c
}

// widest is how many columns of a terminal are used at most: longer lines are hard to read.
const widest = 110

// diagnose looks at the machine with the capabilities that a recording has.
func diagnose(pids []int) []doctor.Check {
	if err := sandbox.Raise(); err != nil {
		return []doctor.Check{{Name: "capabilities", State: doctor.Fail, Detail: err.Error()}}
	}
	return append(doctor.Run(pids), checkConfinement())
}

// checkConfinement returns which rights a recording, and what reads it, give up on this system, by trying it in
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
