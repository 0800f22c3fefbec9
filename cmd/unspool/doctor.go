package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"unspool/capture/doctor"
	"unspool/capture/sandbox"
)

func doctorCommand(status *int) *cobra.Command {
	var color colouring
	c := &cobra.Command{
		Use:   "doctor [--color WHEN]",
		Short: "Check that this machine can record, and say what to change if not",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			checks := diagnose()
			if !doctor.Able(checks) {
				*status = 1
			}
			return doctor.Print(os.Stdout, checks, color.on(os.Stdout))
		},
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
	}
	color.add(c)
	return c
}

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
	c := doctor.Check{Name: "confinement",
		Detail: "a recording by root keeps privileges in a process that parses nothing"}
	recording, err := sandbox.Try()
	reading, rerr := sandbox.TryReading()
	switch {
	case errors.Join(err, rerr) != nil:
		c.State, c.Detail = doctor.Warning, fmt.Sprintf("cannot be tried: %v", errors.Join(err, rerr))
	case len(recording.Missing)+len(reading.Missing) > 0:
		c.State = doctor.Warning
		c.Detail = fmt.Sprintf("recording is %v; reading is %v", recording, reading)
	default:
		c.Detail += "; the rest has " + strings.Join(recording.InForce, ", ") + "; what reads recordings has " +
			strings.Join(reading.InForce, ", ")
	}
	return c
}
