package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"unspool/capture/doctor"
)

func doctorCommand(status *int) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check that this machine can record, and say what to mend",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{"unspool doctor", fmt.Errorf("unexpected argument %q", args[0])}
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			checks := doctor.Run()
			if !doctor.Able(checks) {
				*status = 1
			}
			return doctor.Print(os.Stdout, checks, isTerminal(os.Stdout))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}
