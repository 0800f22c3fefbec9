package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"unspool/capture/doctor"
	"unspool/capture/sandbox"
)

func doctorCommand(status *int) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check that this machine can record, and say what to change if not",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{"unspool doctor", fmt.Errorf("unexpected argument %q", args[0])}
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			checks := diagnose()
			if !doctor.Able(checks) {
				*status = 1
			}
			return doctor.Print(os.Stdout, checks, isTerminal(os.Stdout))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// diagnose looks at the machine with the capabilities that a recording has.
func diagnose() []doctor.Check {
	if err := sandbox.Raise(); err != nil {
		return []doctor.Check{{Name: "capabilities", State: doctor.Fail, Detail: err.Error()}}
	}
	return append(doctor.Run(), checkConfinement())
}

// checkConfinement says which rights a recording gives up on this system, by trying it in another process.
func checkConfinement() doctor.Check {
	c := doctor.Check{Name: "confinement",
		Detail: "a recording by root keeps privileges in a process that parses nothing"}
	report, err := sandbox.Try()
	switch {
	case err != nil:
		c.State, c.Detail = doctor.Warning, fmt.Sprintf("cannot be tried: %v", err)
	case len(report.Missing) > 0:
		c.State, c.Detail = doctor.Warning, report.String()
	default:
		c.Detail += "; the rest has " + strings.Join(report.InForce, ", ")
	}
	return c
}
