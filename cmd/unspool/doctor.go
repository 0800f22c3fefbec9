package main

import (
	"os"

	"github.com/spf13/cobra"

	"unspool/capture/doctor"
)

func doctorCommand(status *int) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check that this machine can record, and say what to mend",
		Args:  cobra.NoArgs,
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
