package main

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestInlineOptions(t *testing.T) {
	for _, usual := range []bool{false, true} {
		for _, c := range []struct {
			args []string
			want bool
		}{
			{nil, usual}, {[]string{"--inline"}, true}, {[]string{"--no-inline"}, false},
			{[]string{"--no-inline", "--inline"}, true}, {[]string{"--inline", "--no-inline"}, false},
			{[]string{"--no-inline=false"}, true}, {[]string{"--inline=false"}, false},
		} {
			fl := pflag.NewFlagSet("", pflag.ContinueOnError)
			var inline bool
			addInline(fl, &inline, usual)
			if err := fl.Parse(c.args); err != nil || inline != c.want {
				t.Errorf("%q where the usual is %v: %v, %v", c.args, usual, inline, err)
			}
		}
	}
}
